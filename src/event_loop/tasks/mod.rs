//! Scheduled tasks of a loop: the methods that schedule them, and their entries.

mod local;
mod schedule;
mod scheduled;

pub(super) use local::{LocalQueue, enter};
