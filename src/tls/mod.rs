//! TLS for channels: encrypted connections, by rustls.
//!
//! TLS is a byte filter below the codec, so pipelines see plaintext only. Handshakes run on the
//! channel's loop, or on a worker pool.

mod client_hello;
mod connection;
mod error;
mod filter;
mod info;
mod offload;
mod provider;
mod session;
#[cfg(test)]
mod tests;

pub use error::NotTls;
pub use info::{TlsInfo, TlsVersion};
