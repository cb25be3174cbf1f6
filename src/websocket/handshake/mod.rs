//! The handshake: requests, responses and their agreement.

mod accept_key;
mod client;
mod filter;
mod handshake_error;
mod server;

#[cfg(test)]
pub(super) use accept_key::accept_key;
pub use client::{ClientHandshake, WebSocketClient};
pub use filter::HandshakeFilter;
pub use handshake_error::HandshakeError;
pub use server::WebSocketServer;
