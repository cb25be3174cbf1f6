//! Why a client refuses the response of a server.

use crate::{
    error::{Error, PeerError},
    http::StatusCode,
};
use std::fmt;

/// Why a client refuses the response of a server to its handshake.
///
/// The cause of a [`PeerError::Protocol`] with the protocol "WebSocket";
/// [`of`](HandshakeError::of) finds it. The channel closes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The server does not switch to WebSocket.
    Status(StatusCode),
    /// The headers `Upgrade` or `Connection` are missing or different.
    NotUpgraded,
    /// The header `Sec-WebSocket-Accept` does not answer our key.
    AcceptKey,
    /// The server has chosen a subprotocol that was not offered.
    Protocol,
    /// The server has accepted an extension or parameter that was not offered.
    Extension,
}

impl HandshakeError {
    /// Returns the `HandshakeError` that caused `error`, if there is one.
    pub fn of(error: &Error) -> Option<&HandshakeError> {
        match error {
            Error::Peer(PeerError::Protocol { cause, .. }) => cause.as_error().downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Status(status) => {
                write!(f, "the server responded with {status} {}", status.reason())
            }
            HandshakeError::NotUpgraded => f.write_str("the server does not switch to WebSocket"),
            HandshakeError::AcceptKey => f.write_str("the server does not answer the key"),
            HandshakeError::Protocol => f.write_str("the server chose a subprotocol that was not offered"),
            HandshakeError::Extension => f.write_str("the server accepted an extension that was not offered"),
        }
    }
}

impl std::error::Error for HandshakeError {}

impl From<HandshakeError> for Error {
    fn from(error: HandshakeError) -> Self {
        PeerError::protocol("WebSocket", error).into()
    }
}
