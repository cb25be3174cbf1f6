//! Client bootstraps, reconnecting clients and pools of connections.

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod bootstrap;
mod connect_on;
mod lookups;
mod loops;
mod pool;
mod reconnect;
#[cfg(all(unix, feature = "redis", feature = "simulation"))]
mod redis;
#[cfg(feature = "websocket")]
mod websocket;
