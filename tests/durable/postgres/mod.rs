//! The PostgreSQL store: the contract of stores, several nodes, and failures of other schedulers.

mod cluster;
mod contract;
mod known_failures;
mod node;
mod outbox;
mod ownership;
mod processes;
mod program;
mod proxy;
mod schema;
mod server;
mod sharing;
mod start_in;
mod stores;
#[cfg(feature = "tls")]
mod tls;
mod topics;
mod transactions;
