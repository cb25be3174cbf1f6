//! How a peer has violated the WebSocket protocol.

use super::{message::CloseCode, role::Role};
use crate::error::{Error, PeerError};
use std::fmt;

/// How a peer has violated the WebSocket protocol, or a limit of this endpoint.
///
/// The cause of a [`PeerError::Protocol`]; [`of`](WebSocketError::of) finds it. The protocol is
/// "WebSocket" if the peer is a client, and "WebSocket server" if it is a server.
///
/// The [`WebSocketStage`](super::WebSocketStage) of the connection sends a Close frame with
/// [`close_code`](WebSocketError::close_code), and closes the channel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WebSocketError {
    /// A client has sent a frame without a mask.
    Unmasked,
    /// A server has sent a frame with a mask.
    Masked,
    /// A reserved bit is set that no extension has defined.
    ReservedBits,
    /// The opcode is not defined.
    UnknownOpcode(u8),
    /// The length of a frame is not encoded in the shortest form.
    NonMinimalLength,
    /// The length of a frame exceeds 63 bits.
    InvalidLength,
    /// A control frame is fragmented.
    FragmentedControl,
    /// A control frame has more than 125 bytes.
    ControlTooLong,
    /// A continuation frame without a message to continue.
    UnexpectedContinuation,
    /// A new message begins before the previous one has ended.
    UnfinishedMessage,
    /// A Close frame of one byte.
    InvalidClosePayload,
    /// A Close frame has a code that must not be sent.
    InvalidCloseCode(CloseCode),
    /// A text message or the reason of a Close frame is not UTF-8.
    InvalidUtf8,
    /// The data of a compressed message is invalid.
    InvalidCompression,
    /// A message is longer than the limit.
    #[non_exhaustive]
    MessageTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A message has more fragments than the limit.
    #[non_exhaustive]
    TooManyFragments {
        /// The limit.
        limit: u32,
    },
}

impl WebSocketError {
    /// Returns the code of the Close frame for this error.
    pub fn close_code(&self) -> CloseCode {
        match self {
            WebSocketError::InvalidUtf8 | WebSocketError::InvalidCompression => CloseCode::INVALID_PAYLOAD,
            WebSocketError::MessageTooLong { .. } | WebSocketError::TooManyFragments { .. } => {
                CloseCode::TOO_BIG
            }
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }

    /// Returns the WebSocket error in `error`, if it is one.
    pub fn of(error: &Error) -> Option<&WebSocketError> {
        match error {
            Error::Peer(PeerError::Protocol { cause, .. }) => cause.as_error().downcast_ref(),
            _ => None,
        }
    }

    /// Like [`of`](WebSocketError::of), if the peer of an endpoint with this role made the error.
    pub(super) fn of_peer(error: &Error, role: Role) -> Option<&WebSocketError> {
        match error {
            Error::Peer(PeerError::Protocol { protocol, .. }) if *protocol == of_peers(role) => {
                WebSocketError::of(error)
            }
            _ => None,
        }
    }

    /// Returns the error of a peer of an endpoint with this role.
    pub(super) fn by_peer(self, role: Role) -> Error {
        PeerError::protocol(of_peers(role), self).into()
    }
}

/// Returns the protocol in the errors of the peers of an endpoint with this role.
fn of_peers(role: Role) -> &'static str {
    match role {
        Role::Server => "WebSocket",
        Role::Client => "WebSocket server",
    }
}

impl fmt::Display for WebSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebSocketError::Unmasked => f.write_str("a client must mask its frames"),
            WebSocketError::Masked => f.write_str("a server must not mask its frames"),
            WebSocketError::ReservedBits => f.write_str("reserved bits are set"),
            WebSocketError::UnknownOpcode(opcode) => write!(f, "opcode {opcode:#x} is not defined"),
            WebSocketError::NonMinimalLength => f.write_str("a length is not in its shortest form"),
            WebSocketError::InvalidLength => f.write_str("a length exceeds 63 bits"),
            WebSocketError::FragmentedControl => f.write_str("a control frame is fragmented"),
            WebSocketError::ControlTooLong => f.write_str("a control frame has more than 125 bytes"),
            WebSocketError::UnexpectedContinuation => f.write_str("a continuation without a message"),
            WebSocketError::UnfinishedMessage => f.write_str("a message begins within another one"),
            WebSocketError::InvalidClosePayload => f.write_str("a Close frame has one byte"),
            WebSocketError::InvalidCloseCode(code) => write!(f, "close code {code} must not be sent"),
            WebSocketError::InvalidUtf8 => f.write_str("text is not UTF-8"),
            WebSocketError::InvalidCompression => f.write_str("compressed data is invalid"),
            WebSocketError::MessageTooLong { limit } => {
                write!(f, "a message is longer than the limit of {limit} bytes")
            }
            WebSocketError::TooManyFragments { limit } => {
                write!(f, "a message has more than {limit} fragments")
            }
        }
    }
}

impl std::error::Error for WebSocketError {}

impl From<WebSocketError> for Error {
    /// Returns the error of a client that violates the protocol in this way.
    fn from(error: WebSocketError) -> Self {
        error.by_peer(Role::Server)
    }
}
