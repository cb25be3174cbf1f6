//! The versions of the PROXY protocol.

use std::fmt;

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// A binary header with optional fields.
    V2,
}

impl fmt::Display for ProxyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProxyVersion::V1 => "version 1",
            ProxyVersion::V2 => "version 2",
        })
    }
}
