//! The body that a head announces.

use bytes::Bytes;

/// The body that the head of a message announces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Body {
    /// No body.
    #[default]
    Empty,
    /// The whole body. It is written together with the head, and no [`Part::End`] follows.
    /// A head that was read never has this.
    ///
    /// [`Part::End`]: crate::http::Part::End
    Full(Bytes),
    /// A body of this length in bytes. It follows in [`Part::Body`](crate::http::Part::Body).
    Sized(u64),
    /// A body of unknown length. It follows in [`Part::Body`](crate::http::Part::Body), in the chunked
    /// encoding. To a client of HTTP/1.0 it is written until the connection closes.
    Streamed,
}

impl Body {
    /// Returns whether parts follow the head: [`Part::Body`](crate::http::Part::Body) and one
    /// [`Part::End`](crate::http::Part::End).
    pub fn is_streamed(&self) -> bool {
        match self {
            Body::Empty | Body::Full(_) => false,
            Body::Sized(_) | Body::Streamed => true,
        }
    }

    /// Returns the length in bytes, if it is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Full(bytes) => Some(bytes.len() as u64),
            Body::Sized(length) => Some(*length),
            Body::Streamed => None,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body::Full(bytes)
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Body::Full(Bytes::from_static(text.as_bytes()))
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Body::Full(Bytes::from_static(bytes))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Body::Full(text.into())
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body::Full(bytes.into())
    }
}
