//! `PeerError`: how a peer broke the protocol.

use std::{fmt, sync::Arc, time::Duration};

/// How a peer broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// A frame or line is longer than allowed.
    #[non_exhaustive]
    TooLong {
        /// The kind of unit that is too long: "frame", "line".
        what: &'static str,
        /// Its length in bytes, as far as known.
        length: u64,
        /// The longest allowed length, in bytes.
        limit: usize,
    },
    /// A frame contradicts itself, for example by a negative length.
    Corrupted(&'static str),
    /// A message does not parse. The text says where.
    Malformed(Arc<str>),
    /// A message that has begun arrives too slowly.
    #[non_exhaustive]
    TooSlow {
        /// Bytes received in the last interval.
        bytes: usize,
        /// Bytes required in each interval.
        required: usize,
        /// Length of the interval.
        within: Duration,
    },
}

impl PeerError {
    /// Creates a [`TooLong`](PeerError::TooLong), for codecs outside this crate.
    pub fn too_long(what: &'static str, length: u64, limit: usize) -> Self {
        PeerError::TooLong { what, length, limit }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::TooLong { what, length, limit } => {
                write!(f, "{what} of {length} bytes is longer than the limit of {limit} bytes")
            }
            PeerError::Corrupted(why) => write!(f, "corrupted frame: {why}"),
            PeerError::Malformed(why) => write!(f, "malformed message: {why}"),
            PeerError::TooSlow { bytes, required, within } => {
                write!(f, "{bytes} bytes of a message in {within:?}; at least {required} are required")
            }
        }
    }
}

impl std::error::Error for PeerError {}
