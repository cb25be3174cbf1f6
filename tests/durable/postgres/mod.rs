//! The PostgreSQL store: the contract of stores, several nodes, and failures of other schedulers.

mod closing;
mod cluster;
mod contract;
mod failover;
mod kills;
mod known_failures;
mod links;
mod node;
mod outbox;
mod ownership;
mod pools;
mod processes;
mod program;
mod proxy;
mod refusals;
mod schema;
pub(crate) mod server;
mod sharing;
mod skew;
mod start_in;
mod stores;
#[cfg(feature = "tls")]
mod tls;
mod topics;
mod transactions;
