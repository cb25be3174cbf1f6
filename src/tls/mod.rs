//! TLS for channels: encrypted connections, by rustls.
//!
//! TLS is a byte filter below the codec, so pipelines see plaintext only.
//! [`ServerBootstrap::tls`](crate::ServerBootstrap::tls) and
//! [`ClientBootstrap::tls`](crate::ClientBootstrap::tls) turn it on. Handshakes run on the
//! channel's loop, or on a worker pool.
//!
//! The cryptography is that of `ring`, or of `aws-lc-rs` with the feature `tls-aws-lc`, which adds
//! post-quantum key exchange.

mod certificate;
mod client;
mod client_hello;
mod connection;
mod detect;
mod endpoint;
mod error;
mod filter;
mod host_name;
mod info;
mod key_log;
mod offload;
mod pem;
mod provider;
mod roots;
mod server;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod tickets;
mod tls_certificates;

pub use certificate::TlsCertificate;
pub use client::{TlsClient, TlsClientBuilder};
pub use endpoint::TlsEndpoint;
pub(crate) use endpoint::sealed::MakeFilter;
pub use error::{NotTls, UnknownHost};
pub use info::{TlsInfo, TlsVersion};
pub use roots::TlsRoots;
pub use server::{ClientCertificates, TlsServer, TlsServerBuilder};
pub use tls_certificates::TlsCertificates;
