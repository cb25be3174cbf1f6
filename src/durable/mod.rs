//! Timers that survive the end of the process.

#[allow(dead_code, reason = "the runs of an expression have no caller yet")]
mod cron;

pub use cron::{Cron, CronError, CronField};
