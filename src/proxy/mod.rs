//! The PROXY protocol, versions 1 and 2: a load balancer announces the addresses of its clients.
//!
//! A connection begins with a header, which is followed by the bytes of the client. The
//! [specification](https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt) is by HAProxy.
//!
//! A server needs [`ProxyProtocol`], which reads the header of each connection in a
//! [filter](ProxyProtocol::filter). A client sends a [`ProxyHeader`] by a
//! [filter](ProxyHeader::filter). Pipeline factories get the header from [`Peer::proxy`], handlers
//! from [`Context::proxy`].
//!
//! [`Context::proxy`]: crate::Context::proxy
//! [`Peer::proxy`]: crate::Peer::proxy

// Invariants: no I/O, any thread. A header keeps only memory for bytes that have arrived, at most
// its limit. No bytes cause a panic.

mod binary;
mod crc32c;
mod encoding;
mod field;
mod filter;
mod header;
mod proxy_error;
mod proxy_protocol;
mod proxy_version;
#[cfg(test)]
mod tests;
mod text;

pub use filter::ProxyFilter;
pub use header::{ProxyCommand, ProxyHeader};
pub use proxy_error::ProxyError;
pub use proxy_protocol::ProxyProtocol;
pub use proxy_version::ProxyVersion;
