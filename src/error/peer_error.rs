//! `PeerError`: how a peer broke the protocol.

use std::{fmt, sync::Arc, time::Duration};

/// How a peer broke the protocol.
///
/// Causes are compared by identity: a failed handshake equals only itself and its clones.
#[derive(Debug, Clone)]
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
    /// The stream ended without the end mark of its protocol, so bytes may be missing.
    Truncated,
    /// The handshake of a filter failed.
    #[non_exhaustive]
    Handshake {
        /// The protocol of the filter, for example "TLS".
        protocol: &'static str,
        /// The cause.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// A filter refused bytes after its handshake.
    #[non_exhaustive]
    Protocol {
        /// The protocol of the filter, for example "TLS".
        protocol: &'static str,
        /// The cause.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl PeerError {
    /// Creates a [`TooLong`](PeerError::TooLong), for codecs outside this crate.
    pub fn too_long(what: &'static str, length: u64, limit: usize) -> Self {
        PeerError::TooLong { what, length, limit }
    }
}

impl PartialEq for PeerError {
    fn eq(&self, other: &Self) -> bool {
        use PeerError::*;
        match (self, other) {
            (
                TooLong { what, length, limit },
                TooLong { what: other_what, length: other_length, limit: other_limit },
            ) => (what, length, limit) == (other_what, other_length, other_limit),
            (Corrupted(why), Corrupted(other)) => why == other,
            (Malformed(why), Malformed(other)) => why == other,
            (
                TooSlow { bytes, required, within },
                TooSlow { bytes: other_bytes, required: other_required, within: other_within },
            ) => (bytes, required, within) == (other_bytes, other_required, other_within),
            (Truncated, Truncated) => true,
            (Handshake { protocol, source }, Handshake { protocol: other_protocol, source: other })
            | (Protocol { protocol, source }, Protocol { protocol: other_protocol, source: other }) => {
                protocol == other_protocol && Arc::ptr_eq(source, other)
            }
            _ => false,
        }
    }
}

impl Eq for PeerError {}

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
            PeerError::Truncated => f.write_str("the stream is cut off: the mark of its end is missing"),
            PeerError::Handshake { protocol, .. } => write!(f, "the {protocol} handshake failed"),
            PeerError::Protocol { protocol, .. } => write!(f, "invalid {protocol} input"),
        }
    }
}

impl std::error::Error for PeerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PeerError::Handshake { source, .. } | PeerError::Protocol { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
