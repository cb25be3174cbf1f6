//! The handshake: requests, responses and what they agree on.

mod accept_key;
mod client;
mod handshake_error;
mod list;
mod server;

pub use client::{ClientHandshake, WebSocketClient};
pub use handshake_error::HandshakeError;
#[cfg(feature = "deflate")]
pub(super) use list::elements;
pub use server::WebSocketServer;
