//! Durable timers: handles, stores, kills, several nodes, and the example `timers`.
//!
//! `cargo test` builds the example. For this test alone, build it first:
//! `cargo build --example timers --features full`.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod backups;
mod clock;
mod commands;
mod crashes;
mod environment;
mod examples;
mod failing_disk;
mod faults;
mod handle;
mod keys;
mod kills;
mod memory;
mod model;
mod new_timers;
mod opening;
#[cfg(feature = "durable-postgres")]
mod postgres;
mod program;
mod prometheus;
mod size;
mod start_in;
mod start_many;
mod timers;
mod topics;
mod turns;
mod wrong_clock;
