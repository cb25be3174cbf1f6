//! Builders of servers and clients, connection pools, and reconnecting clients.

mod client;
mod datagram;
mod dial;
#[cfg(all(test, any(feature = "http", feature = "redis"), not(netwheel_loom)))]
mod lookup_tests;
mod pool;
mod proxy;
mod reconnect;
mod server;
mod server_handle;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "websocket")]
mod websocket;

pub use client::ClientBootstrap;
pub use datagram::DatagramBootstrap;
pub use pool::{AcquireTimeout, ChannelPool, ChannelPoolBuilder, PoolOrder, PooledChannel};
#[cfg(feature = "http")]
pub use pool::{HttpAgent, HttpAgentBuilder, PoolRequest};
pub use reconnect::{Backoff, ReconnectBuilder, ReconnectEvent, ReconnectingChannel};
pub use server::ServerBootstrap;
pub use server_handle::Server;
