//! Durable timers: handles, stores, kills, several nodes.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod clock;
mod examples;
mod handle;
mod keys;
mod kills;
mod opening;
mod size;
mod timers;
