//! `HttpError`: how a peer broke HTTP/1.1.

use super::StatusCode;
use crate::error::{Error, PeerError};
use std::fmt;

/// How a peer broke HTTP/1.1, as the cause of a [`PeerError::Protocol`].
///
/// The protocol is "HTTP" if the peer is a client, and "HTTP response" if it is a server.
///
/// A server has answered with [`status`](HttpError::status) when its handler receives an error with
/// the protocol "HTTP". The error of a backend, with the protocol "HTTP response", is a failure of
/// the handler that returns it.
///
/// [`PeerError::Protocol`]: crate::error::PeerError::Protocol
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HttpError {
    /// The request or status line is malformed.
    StartLine(&'static str),
    /// A header is malformed, missing or contradicts another one.
    Header(&'static str),
    /// The chunked encoding of a body is malformed.
    Chunk(&'static str),
    /// A trailer is malformed, or not allowed as a trailer.
    Trailer(&'static str),
    /// The version of HTTP is neither 1.0 nor 1.1.
    Version,
    /// The body has a transfer coding other than `chunked`.
    Coding,
    /// The expectation of a request is not `100-continue`.
    Expectation,
    /// The request line is longer than allowed.
    LineTooLong,
    /// The head or the trailers are longer than allowed, or have too many lines.
    HeadTooLong,
    /// The body is longer than allowed.
    BodyTooLong,
    /// The head did not arrive in time.
    HeadTimeout,
    /// The body arrives too slowly.
    BodyTimeout,
    /// A server has sent bytes that belong to no request.
    UnexpectedResponse,
    /// A server has switched protocols (101) without a request for it, or in HTTP/1.0.
    UnexpectedUpgrade,
}

/// The [protocol](PeerError::Protocol) of the errors of clients, and that of servers.
const OF_CLIENTS: &str = "HTTP";
const OF_SERVERS: &str = "HTTP response";

impl HttpError {
    /// Returns the status code of the answer to a client that makes this error.
    pub const fn status(self) -> StatusCode {
        match self {
            HttpError::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            HttpError::Coding => StatusCode::NOT_IMPLEMENTED,
            HttpError::Expectation => StatusCode::EXPECTATION_FAILED,
            HttpError::LineTooLong => StatusCode::URI_TOO_LONG,
            HttpError::HeadTooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            HttpError::BodyTooLong => StatusCode::CONTENT_TOO_LARGE,
            HttpError::HeadTimeout | HttpError::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the `HttpError` that caused `error`, if there is one.
    pub fn of(error: &Error) -> Option<HttpError> {
        match error {
            Error::Peer(PeerError::Protocol { cause, .. }) => cause.as_error().downcast_ref().copied(),
            _ => None,
        }
    }

    /// Like [`of`](HttpError::of), if the peer is a client.
    pub(super) fn of_client(error: &Error) -> Option<HttpError> {
        HttpError::of(error).filter(|_| is_of(error, OF_CLIENTS))
    }

    /// Like [`of`](HttpError::of), if the peer is a server.
    pub(super) fn of_server(error: &Error) -> Option<HttpError> {
        HttpError::of(error).filter(|_| is_of(error, OF_SERVERS))
    }

    /// Returns the error of a server that breaks HTTP in this way.
    pub(super) fn in_response(self) -> Error {
        PeerError::protocol(OF_SERVERS, self).into()
    }
}

fn is_of(error: &Error, peers: &str) -> bool {
    matches!(error, Error::Peer(PeerError::Protocol { protocol, .. }) if *protocol == peers)
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, why) = match *self {
            HttpError::StartLine(why) => ("malformed start line: ", why),
            HttpError::Header(why) => ("malformed head: ", why),
            HttpError::Chunk(why) => ("malformed chunk: ", why),
            HttpError::Trailer(why) => ("malformed trailers: ", why),
            HttpError::Version => ("", "the version is neither HTTP/1.0 nor HTTP/1.1"),
            HttpError::Coding => ("", "a transfer coding other than chunked"),
            HttpError::Expectation => ("", "an expectation other than 100-continue"),
            HttpError::LineTooLong => ("", "the request line is too long"),
            HttpError::HeadTooLong => ("", "the head is too long"),
            HttpError::BodyTooLong => ("", "the body is too long"),
            HttpError::HeadTimeout => ("", "the head has not arrived in time"),
            HttpError::BodyTimeout => ("", "the body arrives too slowly"),
            HttpError::UnexpectedResponse => ("", "a response without a request"),
            HttpError::UnexpectedUpgrade => ("", "a switch of protocols without a request for it"),
        };
        write!(f, "{part}{why}")
    }
}

impl std::error::Error for HttpError {}

impl From<HttpError> for Error {
    /// Returns the error of a client that breaks HTTP in this way.
    fn from(error: HttpError) -> Self {
        PeerError::protocol(OF_CLIENTS, error).into()
    }
}
