//! The handshake: requests, responses and their agreement.

mod accept_key;
mod client;
mod handshake_error;
mod server;

pub use client::{ClientHandshake, WebSocketClient};
pub use handshake_error::HandshakeError;
pub use server::WebSocketServer;
