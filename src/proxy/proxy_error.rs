//! Why a PROXY header is refused.

use super::proxy_version::ProxyVersion;
use std::fmt;

/// The reason why a PROXY header is refused. The connection closes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyError {
    /// The connection comes from outside of the trusted networks.
    Untrusted,
    /// The connection begins with something else.
    Absent,
    /// The header has a version that is not accepted.
    VersionNotAccepted(ProxyVersion),
    /// The header is longer than allowed.
    #[non_exhaustive]
    TooLong {
        /// Its length in bytes, or the part of it that is known.
        length: usize,
        /// The longest allowed length, in bytes.
        limit: usize,
    },
    /// The header violates the protocol. The text says how.
    Malformed(&'static str),
    /// The checksum of the header is wrong.
    #[non_exhaustive]
    Checksum {
        /// The checksum in the header.
        announced: u32,
        /// The checksum of the bytes that arrived.
        computed: u32,
    },
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyError::Untrusted => f.write_str("the connection comes from outside of the trusted networks"),
            ProxyError::Absent => f.write_str("the connection does not begin with a PROXY header"),
            ProxyError::VersionNotAccepted(version) => {
                write!(f, "PROXY protocol {version} is not accepted")
            }
            ProxyError::TooLong { length, limit } => {
                write!(f, "PROXY header of {length} bytes is longer than the limit of {limit} bytes")
            }
            ProxyError::Malformed(why) => write!(f, "malformed PROXY header: {why}"),
            ProxyError::Checksum { announced, computed } => {
                write!(f, "PROXY header has checksum {announced:08x}, but its bytes have {computed:08x}")
            }
        }
    }
}

impl std::error::Error for ProxyError {}
