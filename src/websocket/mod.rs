//! WebSocket (RFC 6455) for servers and clients.
//!
//! [`WebSocket`] has the settings. The [`WebSocketCodec`] turns frames into [`Message`]s, and the
//! [`WebSocketStage`] answers control frames, closes connections in order and detects dead peers.

mod assembly;
mod close_code;
mod codec;
mod header;
mod mask;
mod message;
mod role;
mod settings;
mod stage;
#[cfg(test)]
mod tests;
mod utf8_bytes;
mod utf8_validator;
mod websocket_error;

pub use close_code::CloseCode;
pub use codec::WebSocketCodec;
pub use message::{CloseFrame, Message};
pub use settings::{WebSocket, WebSocketBuilder, WebSocketPipeline};
pub use stage::WebSocketStage;
pub use utf8_bytes::Utf8Bytes;
pub use websocket_error::WebSocketError;
