//! The event loop: tasks, fairness, polling, offloaded work, metrics.

#[path = "../support/mod.rs"]
mod support;

mod fairness;
mod log_throttle;
mod loop_survives;
mod manual_loop;
mod metrics;
mod offload;
mod polling;
mod prometheus;
mod tasks;
mod watchdog;
