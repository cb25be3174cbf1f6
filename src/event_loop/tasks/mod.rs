//! Scheduled tasks of a loop: the methods that schedule them, their entries, and their repetition.

mod local;
mod periodic;
mod schedule;
mod scheduled;

pub(super) use local::{LocalQueue, enter};
pub use periodic::{MissedRuns, Periodic};
pub use scheduled::ScheduledTask;
