//! Durable timers: handles, stores, kills, several nodes, and the example `timers`.
//!
//! `cargo test` builds the example. For this test alone, build it first:
//! `cargo build --example timers --features full`.
//!
//! With `durable` alone, the tests of the store in memory are built. The features `rusqlite-040`
//! and `postgres-019` add those of the other stores.

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "rusqlite-040")]
mod answers;
#[cfg(feature = "rusqlite-040")]
mod backups;
#[cfg(feature = "rusqlite-040")]
mod clock;
#[cfg(feature = "rusqlite-040")]
mod commands;
#[cfg(feature = "rusqlite-040")]
mod crashes;
#[cfg(feature = "rusqlite-040")]
mod environment;
#[cfg(feature = "rusqlite-040")]
mod examples;
#[cfg(feature = "rusqlite-040")]
mod failing_disk;
#[cfg(feature = "rusqlite-040")]
mod faults;
#[cfg(feature = "rusqlite-040")]
mod handle;
#[cfg(feature = "rusqlite-040")]
mod keys;
#[cfg(feature = "rusqlite-040")]
mod kills;
mod memory;
#[cfg(feature = "rusqlite-040")]
mod model;
mod new_timers;
#[cfg(feature = "rusqlite-040")]
mod opening;
#[cfg(feature = "postgres-019")]
mod postgres;
#[cfg(feature = "rusqlite-040")]
mod program;
#[cfg(feature = "rusqlite-040")]
mod prometheus;
#[cfg(feature = "rusqlite-040")]
mod size;
#[cfg(feature = "rusqlite-040")]
mod start_in;
#[cfg(feature = "rusqlite-040")]
mod start_many;
mod timers;
#[cfg(feature = "rusqlite-040")]
mod topics;
mod turns;
#[cfg_attr(
    not(feature = "rusqlite-040"),
    allow(dead_code, reason = "kills of stores in files use all of it")
)]
mod wrong_clock;
