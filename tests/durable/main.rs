//! Durable timers: handles, stores, kills, several nodes.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod clock;
mod examples;
mod faults;
mod handle;
mod keys;
mod kills;
mod model;
mod opening;
#[cfg(feature = "durable-postgres")]
mod postgres;
mod size;
mod timers;
