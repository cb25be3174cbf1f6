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
mod races;
mod schedules;
mod simulation;
mod timeouts;
mod turns;
