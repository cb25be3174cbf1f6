//! Bootstraps: how servers and clients start.

mod client;
mod pool;
mod reconnect;
mod server;
mod server_handle;

pub use client::ClientBootstrap;
pub use pool::{ChannelPool, PoolBuilder, PoolOrder, PoolTimeout, Pooled};
pub use reconnect::{Backoff, Reconnect, ReconnectEvent, Reconnecting};
pub use server::ServerBootstrap;
pub use server_handle::Server;

use crate::{Error, Result};
use std::net::{SocketAddr, ToSocketAddrs};

/// The addresses that a name stands for; may block on a name server.
fn resolve(address: impl ToSocketAddrs) -> Result<Vec<SocketAddr>> {
    let addresses: Vec<_> =
        address.to_socket_addrs().map_err(|e| Error::io("resolving an address", e))?.collect();
    if addresses.is_empty() {
        let nothing = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
        return Err(Error::io("resolving an address", nothing));
    }
    Ok(addresses)
}
