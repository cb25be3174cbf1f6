//! WebSocket (RFC 6455) for servers and clients.
//!
//! A [`WebSocketServer`] accepts the requests of an [`HttpServer`](crate::http::HttpServer), and a
//! [`WebSocketClient`] makes them. Afterwards the [`WebSocketCodec`] turns frames into
//! [`Message`]s. The [`WebSocketStage`] answers control frames, closes connections in order and
//! detects dead peers. [`WebSocketSettings`] lists the limits.
//!
//! With the feature `deflate`, messages can be compressed (permessage-deflate, RFC 7692).

mod accepted;
mod close_hint;
#[cfg(not(feature = "deflate"))]
#[path = "uncompressed.rs"]
mod compression;
mod connection;
#[cfg(feature = "deflate")]
mod deflate;
mod error;
mod frame;
mod handshake;
mod header_list;
mod message;
mod role;
mod settings;
mod stage;
#[cfg(test)]
mod tests;

pub use accepted::Accepted;
pub use connection::WebSocketPipeline;
#[cfg(feature = "deflate")]
pub use deflate::Deflate;
#[cfg(feature = "deflate")]
use deflate::compression;
pub use error::WebSocketError;
pub use frame::WebSocketCodec;
pub use handshake::{ClientHandshake, HandshakeError, HandshakeFilter, WebSocketClient, WebSocketServer};
pub use message::{CloseCode, CloseFrame, Message, Utf8Bytes};
pub use settings::WebSocketSettings;
pub use stage::WebSocketStage;
