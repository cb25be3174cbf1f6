//! Messages of a WebSocket connection.

use super::{close_code::CloseCode, utf8_bytes::Utf8Bytes};
use bytes::Bytes;

/// A message of a WebSocket connection.
///
/// A handler behind a [`WebSocketStage`](crate::websocket::WebSocketStage) reads `Text`, `Binary`
/// and one `Close`. It may write all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A text message.
    Text(Utf8Bytes),
    /// A binary message.
    Binary(Bytes),
    /// A Ping frame with at most 125 bytes, which the peer answers with a Pong of the same bytes.
    Ping(Bytes),
    /// A Pong frame with at most 125 bytes.
    Pong(Bytes),
    /// A Close frame, the last frame in its direction. `None` is a frame without code and reason.
    Close(Option<CloseFrame>),
}

/// The code and the reason of a Close frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseFrame {
    /// The status code.
    pub code: CloseCode,
    /// A text for logs, with at most 123 bytes.
    pub reason: Utf8Bytes,
}

impl Message {
    /// Creates a text message.
    pub fn text(text: impl Into<Utf8Bytes>) -> Self {
        Message::Text(text.into())
    }

    /// Creates a binary message.
    pub fn binary(bytes: impl Into<Bytes>) -> Self {
        Message::Binary(bytes.into())
    }

    /// Creates a Close frame with a code and a reason.
    pub fn close(code: CloseCode, reason: impl Into<Utf8Bytes>) -> Self {
        Message::Close(Some(CloseFrame { code, reason: reason.into() }))
    }

    /// Returns the text of a text message, or `None` for other messages.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Message::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether this is a Ping, Pong or Close frame.
    pub fn is_control(&self) -> bool {
        matches!(self, Message::Ping(_) | Message::Pong(_) | Message::Close(_))
    }
}

#[cfg(feature = "json")]
impl crate::stage::JsonFrame for Message {
    fn json(&self) -> Option<&[u8]> {
        match self {
            Message::Text(text) => Some(text.as_bytes()),
            Message::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn from_json(text: String) -> Self {
        Message::text(text)
    }
}
