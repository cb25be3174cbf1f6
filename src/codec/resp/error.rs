//! `RespError`: how a peer broke the rules of RESP.

use std::fmt;

/// A violation of the Redis serialization protocol; the cause of a
/// [`PeerError::Protocol`](crate::error::PeerError::Protocol).
///
/// After most violations the position of the next message is unknown; see
/// [`is_recoverable`](RespError::is_recoverable).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RespError {
    /// A byte that is not the first one of any type.
    UnknownType(u8),
    /// A request that is not an array of bulk strings. The byte is the type that was sent instead.
    NotARequest(u8),
    /// A push message inside another message.
    NestedPush,
    /// A string or aggregate that is sent in parts (`$?`, `*?`, `;`), which RESP3 allows, but which
    /// Redis neither sends nor accepts.
    Streamed,
    /// A length or a number of elements that is not a decimal number in its shortest form.
    InvalidLength,
    /// The text of a value is not of its type: "integer", "double", "big number", "boolean",
    /// "null", "verbatim string".
    InvalidValue(&'static str),
    /// A CR without LF, or an LF without CR, in a line.
    InvalidLine,
    /// A bulk string that is not followed by CRLF.
    MissingTerminator,
    /// More nested aggregates than allowed.
    #[non_exhaustive]
    TooDeep {
        /// The number of levels allowed.
        limit: usize,
    },
    /// A message with more elements than allowed, in all its levels together.
    #[non_exhaustive]
    TooManyElements {
        /// Elements announced by all headers so far.
        elements: u64,
        /// The number of elements allowed.
        limit: usize,
    },
    /// An inline command in which a quoted argument has no closing quote, or text behind it.
    UnbalancedQuotes,
    /// An inline command that is the beginning of an HTTP request: `POST` or `Host:`. A web page
    /// may have made a browser send it.
    HttpRequest,
}

impl RespError {
    /// Returns whether the codec decodes the next message. If not, it drops all further input, so
    /// close the channel.
    pub fn is_recoverable(&self) -> bool {
        matches!(self, RespError::TooManyElements { .. } | RespError::UnbalancedQuotes)
    }
}

impl fmt::Display for RespError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RespError::UnknownType(byte) => write!(f, "unknown type {:?}", char::from(*byte)),
            RespError::NotARequest(byte) => {
                write!(f, "type {:?}; a request is an array of bulk strings", char::from(*byte))
            }
            RespError::NestedPush => f.write_str("a push message inside another message"),
            RespError::Streamed => f.write_str("streamed strings and aggregates are not supported"),
            RespError::InvalidLength => f.write_str("invalid length"),
            RespError::InvalidValue(what) => write!(f, "invalid {what}"),
            RespError::InvalidLine => f.write_str("a line does not end in CRLF"),
            RespError::MissingTerminator => f.write_str("a bulk string is not followed by CRLF"),
            RespError::TooDeep { limit } => write!(f, "more than {limit} nested aggregates"),
            RespError::TooManyElements { elements, limit } => {
                write!(f, "{elements} elements; the limit is {limit}")
            }
            RespError::UnbalancedQuotes => f.write_str("unbalanced quotes in an inline command"),
            RespError::HttpRequest => f.write_str("an HTTP request instead of inline commands"),
        }
    }
}

impl std::error::Error for RespError {}
