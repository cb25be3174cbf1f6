//! TLS for channels: encrypted connections, by rustls.
//!
//! TLS is a byte filter below the codec, so pipelines see plaintext only. Handshakes run on the
//! channel's loop, or on a worker pool.

mod connection;
mod info;
mod provider;

pub use info::{TlsInfo, TlsVersion};
