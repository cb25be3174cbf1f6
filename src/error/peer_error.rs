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
        /// Its length in bytes, or the part of it that is known.
        length: u64,
        /// The longest allowed length, in bytes.
        limit: usize,
    },
    /// A frame contradicts itself, for example by a negative length.
    Corrupted(&'static str),
    /// A message does not parse. The text says where.
    Malformed(Arc<str>),
    /// The connection has ended without the mark of its end (TLS: `close_notify`), so the last
    /// bytes may be missing. An attacker can cut a stream anywhere.
    Truncated,
    /// The peer has violated the protocol of a byte filter, or refused ours: a failed TLS
    /// handshake, an altered record, an invalid PROXY header.
    #[non_exhaustive]
    Protocol {
        /// The protocol: "TLS", "PROXY".
        protocol: &'static str,
        /// The violation, for example a `rustls::Error`.
        cause: ProtocolCause,
    },
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

    /// Creates a [`Protocol`](PeerError::Protocol).
    pub fn protocol(
        protocol: &'static str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        PeerError::Protocol { protocol, cause: ProtocolCause(Arc::from(cause.into())) }
    }
}

/// The reason of a [`PeerError::Protocol`]; an error of the protocol's implementation. Two reasons
/// are equal if their texts are.
#[derive(Debug, Clone)]
pub struct ProtocolCause(Arc<dyn std::error::Error + Send + Sync>);

impl ProtocolCause {
    /// Returns the error, which can be downcast.
    pub fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl PartialEq for ProtocolCause {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for ProtocolCause {}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::TooLong { what, length, limit } => {
                write!(f, "{what} of {length} bytes is longer than the limit of {limit} bytes")
            }
            PeerError::Corrupted(why) => write!(f, "corrupted frame: {why}"),
            PeerError::Malformed(why) => write!(f, "malformed message: {why}"),
            PeerError::Truncated => f.write_str("the stream is cut off before its end"),
            PeerError::Protocol { protocol, .. } => write!(f, "{protocol} failed"),
            PeerError::TooSlow { bytes, required, within } => {
                write!(f, "{bytes} bytes of a message in {within:?}; at least {required} are required")
            }
        }
    }
}

impl std::error::Error for PeerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PeerError::Protocol { cause, .. } => Some(&*cause.0),
            _ => None,
        }
    }
}
