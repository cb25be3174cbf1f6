//! The engine in virtual time.

mod clocks;
mod commands;
mod concurrency;
mod interrupted;
mod lateness;
mod leases;
mod looks;
mod memory;
mod outcomes;
mod pauses;
#[cfg(feature = "rusqlite-040")]
mod races;
mod schedules;
mod simulation;
mod timeouts;
mod turns;
