//! The report of a stuck loop.
//!
//! A plain value that can be kept and sent to any thread.

use crate::{id::ChannelId, sync::LoopPhase};
use std::{fmt, panic::Location, time::Duration};

/// A loop that has spent more than its watchdog's limit in one turn, and its activity at the time
/// of the report.
///
/// `Display` formats the report as a log line, without a trailing newline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The name of the loop.
    pub event_loop: String,
    /// The number of the turn, as counted by
    /// [`LoopMetrics::turns`](crate::metrics::LoopMetrics::turns).
    pub turn: u64,
    /// The phase of the turn.
    pub phase: LoopPhase,
    /// The channel whose callback, codec or stage was running, if any.
    pub channel: Option<ChannelId>,
    /// The type of that channel's handler.
    pub handler: Option<&'static str>,
    /// The source location where the running task was submitted, if the loop was running a task.
    pub task: Option<&'static Location<'static>>,
    /// The duration of the turn, as observed by the watchdog. The real duration may be longer by up
    /// to a quarter of the limit.
    pub elapsed: Duration,
    /// The time spent in the current callback or task, as observed by the watchdog. A value close
    /// to `elapsed` means that this call blocks. A much smaller value means that the turn runs many
    /// calls, of which this is one.
    pub in_call: Duration,
}

impl Stall {
    /// Formats the log line for the end of the stall.
    pub(super) fn over(&self) -> impl fmt::Display + '_ {
        Over(self)
    }

    /// Writes the phase, and the channel, handler or task that ran.
    fn fmt_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {}", self.phase)?;
        if let Some(channel) = self.channel {
            write!(f, ": channel {channel}")?;
        }
        if let Some(handler) = self.handler {
            write!(f, ", handler {handler}")?;
        }
        if let Some(task) = self.task {
            write!(f, ": the task submitted at {task}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has been stuck for {:?} ", self.event_loop, in_millis(self.elapsed))?;
        self.fmt_place(f)?;
        if self.in_call < self.elapsed / 2 && (self.channel.is_some() || self.task.is_some()) {
            write!(f, " (for {:?}, after other calls)", in_millis(self.in_call))?;
        }
        Ok(())
    }
}

struct Over<'a>(&'a Stall);

impl fmt::Display for Over<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Over(stall) = self;
        write!(f, "{} continues after being stuck for {:?} ", stall.event_loop, in_millis(stall.elapsed))?;
        stall.fmt_place(f)
    }
}

fn in_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
