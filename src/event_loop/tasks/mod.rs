//! Scheduled tasks of a loop: the ways to schedule them, their entries, and when they repeat.

mod local;
mod periodic;
mod schedule;
mod scheduled;

pub(super) use local::{LocalQueue, enter};
pub use periodic::{MissedRuns, Periodic};
pub use scheduled::ScheduledTask;
