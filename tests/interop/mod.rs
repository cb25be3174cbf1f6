//! Tests with other implementations of the protocols, as programs, and of the example `gateway`.
//!
//! A test whose program is not installed is skipped, except in CI. The servers are examples.

#[cfg(all(feature = "durable-sqlite", feature = "json", feature = "prometheus", feature = "websocket"))]
mod browser;
mod files;
mod gateway;
mod gnutls;
mod host_names;
mod http;
mod misbehaving;
mod openssl;
mod proxy;
#[cfg(unix)]
mod redis;
mod sslscan;
mod tls_echo;
mod tlslite;
#[cfg(feature = "deflate")]
mod websocket;
#[cfg(feature = "deflate")]
mod websocket_peers;
