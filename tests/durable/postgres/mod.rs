//! The PostgreSQL store: the contract of stores, several nodes, and failures of other schedulers.

mod contract;
mod ownership;
mod schema;
mod server;
mod sharing;
mod stores;
mod transactions;
