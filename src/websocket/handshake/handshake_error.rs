//! Why a client refuses the response of a server.

use crate::{
    error::{Error, PeerError},
    http::{FullMessage, Headers, Response, StatusCode},
};
use bytes::Bytes;
use std::{fmt, time::Duration};

/// Why a client refuses the response of a server to its handshake.
///
/// The `connect` of a [`ClientBootstrap::websocket`](crate::ClientBootstrap::websocket) fails with
/// it, as the cause of a [`PeerError::Protocol`] with the protocol "WebSocket".
/// [`of`](HandshakeError::of) finds it there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The server does not switch to WebSocket. Contains its response, with at most
    /// [`MAX_BODY`](HandshakeError::MAX_BODY) bytes of the body.
    Refused(Box<FullMessage<Response>>),
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
    /// The largest number of bytes of a refusal's body: 4 KiB. The rest is not read.
    pub const MAX_BODY: usize = 4096;

    /// Returns the `HandshakeError` that caused `error`, if there is one.
    pub fn of(error: &Error) -> Option<&HandshakeError> {
        match error {
            Error::Peer(PeerError::Protocol { cause, .. }) => cause.as_error().downcast_ref(),
            _ => None,
        }
    }

    /// Returns the refusal with this head.
    pub(super) fn refused(head: Response) -> Self {
        HandshakeError::Refused(Box::new(FullMessage { head, body: Bytes::new(), trailers: Headers::new() }))
    }

    /// Returns the response of a server that does not switch to WebSocket.
    pub fn response(&self) -> Option<&FullMessage<Response>> {
        match self {
            HandshakeError::Refused(response) => Some(response),
            _ => None,
        }
    }

    /// Returns the status of a server that does not switch to WebSocket.
    pub fn status(&self) -> Option<StatusCode> {
        self.response().map(|response| response.head.status())
    }

    /// Returns the time after which the server asks to try again, from the header `Retry-After` of
    /// a refusal. A date counts from the header `Date` of the same response, so the clocks may
    /// differ.
    /// [Reconnecting clients](crate::ClientBootstrap::reconnect) wait for that time.
    pub fn retry_after(&self) -> Option<Duration> {
        let headers = self.response()?.head.headers();
        let text = |name: &str| Some(std::str::from_utf8(headers.get(name)?).ok()?.trim());
        let value = text("Retry-After")?;
        if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
        }
        let parse = |text: &str| httpdate::parse_http_date(text).ok();
        let (at, now) = (parse(value)?, parse(text("Date")?)?);
        Some(at.duration_since(now).unwrap_or_default())
    }

    /// Returns whether another attempt may succeed, for
    /// [`retry_if`](crate::reconnect::ReconnectBuilder::retry_if). The server must change first if
    /// it has responded with 3xx or 4xx, except for 408, 421, 425 and 429, or with a 101 that does
    /// not answer the request. Errors that are not a `HandshakeError` are retryable.
    pub fn is_retryable(error: &Error) -> bool {
        let Some(refusal) = HandshakeError::of(error) else { return true };
        let Some(status) = refusal.status() else { return false };
        !matches!(status.as_u16(), 300..=499) || matches!(status.as_u16(), 408 | 421 | 425 | 429)
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Refused(response) => {
                let status = response.head.status();
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
