//! The engine in virtual time.

mod clocks;
mod commands;
mod lateness;
mod leases;
mod memory;
mod outcomes;
mod schedules;
mod simulation;
