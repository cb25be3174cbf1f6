//! The report of a stuck loop.
//!
//! A plain value that can be kept and sent to any thread.

use crate::{ChannelId, sync::Phase};
use std::{fmt, panic::Location, time::Duration};

/// A loop that has been in one turn for longer than its watchdog's limit, and what it was doing when that was seen.
///
/// It prints as a line for the log, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The name of the loop.
    pub event_loop: String,
    /// Which of its turns, as [`LoopMetrics::turns`](crate::LoopMetrics::turns) counts them.
    pub turn: u64,
    /// What kind of work it was at.
    pub phase: Phase,
    /// The channel whose callback, codec or stage was running, if one was.
    pub channel: Option<ChannelId>,
    /// The type of that channel's handler.
    pub handler: Option<&'static str>,
    /// Where the task that was running had been given to the loop, if it was a task of the loop's own.
    pub task: Option<&'static Location<'static>>,
    /// How long it has been in this turn, as far as the watchdog has seen: at least so long, and at most a quarter
    /// of the limit longer.
    pub elapsed: Duration,
    /// How much of that it has been in this very callback or task, as far as the watchdog has seen. Close to
    /// `elapsed`: this is what blocks. Far below it: the turn is long because it has many, of which this is one.
    pub in_call: Duration,
}

impl Stall {
    /// As a line for the log when it is over.
    pub(super) fn over(&self) -> impl fmt::Display + '_ {
        Over(self)
    }

    /// In which phase, and whose code ran.
    fn fmt_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {}", self.phase)?;
        if let Some(channel) = self.channel {
            write!(f, ": channel {channel}")?;
        }
        if let Some(handler) = self.handler {
            write!(f, ", handler {handler}")?;
        }
        if let Some(task) = self.task {
            write!(f, ": the task given at {task}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has been stuck for {:?} ", self.event_loop, in_millis(self.elapsed))?;
        self.fmt_place(f)?;
        if self.in_call < self.elapsed / 2 && (self.channel.is_some() || self.task.is_some()) {
            write!(f, " (for {:?}; there were others before)", in_millis(self.in_call))?;
        }
        Ok(())
    }
}

struct Over<'a>(&'a Stall);

impl fmt::Display for Over<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Over(stall) = self;
        write!(f, "{} goes on; it was stuck for {:?} ", stall.event_loop, in_millis(stall.elapsed))?;
        stall.fmt_place(f)
    }
}

fn in_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
