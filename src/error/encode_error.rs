//! `EncodeError`: why a message of the program cannot be encoded.

use std::{fmt, sync::Arc};

/// Why a message of the program cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message is longer than the format can express or the codec allows.
    #[non_exhaustive]
    TooLong {
        /// The kind of unit that is too long: "frame", "line".
        what: &'static str,
        /// Its length in bytes.
        length: u64,
        /// The longest allowed length, in bytes.
        limit: u64,
    },
    /// The format cannot express the message. The text says why.
    Unencodable(Arc<str>),
}

impl EncodeError {
    /// Creates a [`TooLong`](EncodeError::TooLong), for codecs outside this crate.
    pub fn too_long(what: &'static str, length: u64, limit: u64) -> Self {
        EncodeError::TooLong { what, length, limit }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::TooLong { what, length, limit } => {
                write!(f, "{what} of {length} bytes is longer than the limit of {limit} bytes")
            }
            EncodeError::Unencodable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for EncodeError {}
