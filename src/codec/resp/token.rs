//! `Token`: a value without its elements.

use super::{error::RespError, role::Role};
use std::ops::Range;

/// A value without its elements. Ranges are positions in the input.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Simple(Range<usize>),
    Error(Range<usize>),
    Integer(i64),
    Bulk(Range<usize>),
    NullBulk,
    NullArray,
    Null,
    Boolean(bool),
    Double(f64),
    BigNumber(Range<usize>),
    BulkError(Range<usize>),
    Verbatim([u8; 3], Range<usize>),
    /// The line of an inline command.
    Inline(Range<usize>),
    /// The header of an aggregate, and its count.
    Open(Aggregate, u64),
}

/// A type that has elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    Array,
    Set,
    Push,
    Map,
    Attribute,
}

impl Aggregate {
    /// Returns the number of values behind a header with `count`, which is at most `i64::MAX`.
    pub(super) fn values(self, count: u64) -> u64 {
        match self {
            Aggregate::Array | Aggregate::Set | Aggregate::Push => count,
            Aggregate::Map => 2 * count,
            // The last one is the value that has the attributes.
            Aggregate::Attribute => 2 * count + 1,
        }
    }
}

/// Where in a message a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A request of a client: an array, or a line of text.
    Request { inline: bool },
    /// An element of a request: a bulk string.
    Argument,
    /// A reply or a push message.
    Reply,
    /// An element of a reply.
    Element,
}

impl Place {
    pub(super) fn new(role: Role, depth: usize) -> Self {
        match (role, depth) {
            (Role::Server { inline }, 0) => Place::Request { inline },
            (Role::Server { .. }, _) => Place::Argument,
            (Role::Client, 0) => Place::Reply,
            (Role::Client, _) => Place::Element,
        }
    }
}

/// The result of an attempt to read a token.
#[derive(Debug)]
pub(super) enum Step {
    /// The token, and the position of its end.
    Whole(Token, usize),
    /// The token is incomplete. The next attempt needs at least this length of input.
    Incomplete { need: usize },
}

/// The reason why a token cannot be read. `end` is the position behind the byte that proves it.
#[derive(Debug)]
pub(super) enum Fault {
    Broken {
        error: RespError,
        end: usize,
    },
    /// The token is too long, and its rest can be skipped.
    TooLong {
        what: &'static str,
        length: u64,
        limit: usize,
        rest: Rest,
        end: usize,
    },
}

/// What follows in a token that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// This number of bytes, and CRLF.
    Bytes(u64),
    /// Bytes up to CRLF.
    Line,
    /// Bytes up to LF.
    Inline,
}
