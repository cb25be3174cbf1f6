//! Text that shares its memory.

use bytes::Bytes;
use bytestring::ByteString;
use std::{fmt, ops::Deref, str::Utf8Error};

/// A [`Bytes`] that is valid UTF-8. Cheap to clone: the clones share the memory.
///
/// Dereferences to [`str`]. Text of an inbound message shares a buffer with other messages. A
/// handler that keeps short texts for a long time should copy them.
///
/// ```
/// use netwheel::websocket::Utf8Bytes;
///
/// let text = Utf8Bytes::from("hello");
/// assert!(text.starts_with("he"));
/// assert!(Utf8Bytes::try_from(bytes::Bytes::from_static(b"\xff")).is_err());
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utf8Bytes(ByteString);

impl Utf8Bytes {
    /// Returns a text that borrows from the program, without a copy.
    pub const fn from_static(text: &'static str) -> Self {
        Utf8Bytes(ByteString::from_static(text))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the bytes of the text.
    pub fn as_bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }

    /// Converts the text to its bytes, without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.0.into_bytes()
    }
}

impl Deref for Utf8Bytes {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Utf8Bytes {
    fn as_ref(&self) -> &str {
        self
    }
}

impl AsRef<[u8]> for Utf8Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<String> for Utf8Bytes {
    fn from(text: String) -> Self {
        Utf8Bytes(text.into())
    }
}

impl From<&str> for Utf8Bytes {
    /// Copies the text.
    fn from(text: &str) -> Self {
        Utf8Bytes(text.to_owned().into())
    }
}

impl TryFrom<Bytes> for Utf8Bytes {
    type Error = Utf8Error;

    fn try_from(bytes: Bytes) -> Result<Self, Utf8Error> {
        ByteString::try_from(bytes).map(Utf8Bytes)
    }
}

impl From<Utf8Bytes> for Bytes {
    fn from(text: Utf8Bytes) -> Bytes {
        text.into_bytes()
    }
}

impl PartialEq<str> for Utf8Bytes {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Utf8Bytes {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for Utf8Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Utf8Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}
