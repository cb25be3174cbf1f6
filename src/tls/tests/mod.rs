//! TLS between a client and a server in memory.

mod attacks;
pub(in crate::tls) mod certificates;
mod channels;
mod closing;
mod forger;
mod handshakes;
mod mutations;
mod offloading;
mod pair;
mod settings;
mod slow_peers;
mod sockets;
mod upgrades;
