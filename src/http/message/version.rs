//! The versions of HTTP/1.

use std::fmt;

/// A version of HTTP/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// HTTP/1.0: one request per connection unless both sides agree on more, and no chunked bodies.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl Version {
    /// Returns the version as it is written in a message.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
