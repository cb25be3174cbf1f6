//! Client bootstraps, reconnecting clients and pools of connections.

#[path = "../support/mod.rs"]
mod support;

mod bootstrap;
mod pool;
mod reconnect;
