//! The cause and the result of a rebuild of the poll.
//!
//! Plain data. `turn::rebuild` replaces the poll.

use std::{fmt, time::Duration};

/// Why a poll was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebuildCause {
    /// The program asked for it.
    Asked,
    /// It returned for no reason again and again.
    Premature,
    /// It failed.
    PollFailed {
        /// Whether that was not said in the minute before.
        first: bool,
    },
}

/// What came of replacing a poll; see [`EventLoop::rebuild_poll`](crate::EventLoop::rebuild_poll).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollRebuild {
    /// Why it was done.
    pub cause: RebuildCause,
    /// Which poll of the loop was replaced; the first is 1.
    pub old_poll: u64,
    /// Which is in use now.
    pub new_poll: u64,
    /// Listeners, connections, connections in the making and datagram channels that were moved.
    pub moved: usize,
    /// Those that could not be moved and were closed, with the error.
    pub closed: usize,
    /// How long it took, by the loop's clock.
    pub took: Duration,
}

impl fmt::Display for RebuildCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RebuildCause::Asked => "asked for",
            RebuildCause::Premature => "it returned for no reason",
            RebuildCause::PollFailed { .. } => "it failed",
        })
    }
}

impl fmt::Display for PollRebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PollRebuild { cause, old_poll, new_poll, moved, closed, took } = self;
        write!(f, "poll rebuilt ({cause}): {moved} sources moved, {closed} closed; ")?;
        write!(f, "poll {new_poll} instead of {old_poll}, in {took:?}")
    }
}

impl RebuildCause {
    /// What a person should see: not what was asked for, and of a poll that fails again and again not every time.
    pub(in crate::event_loop) fn level(self) -> log::Level {
        match self {
            RebuildCause::Asked => log::Level::Info,
            RebuildCause::Premature | RebuildCause::PollFailed { first: true } => log::Level::Warn,
            RebuildCause::PollFailed { first: false } => log::Level::Debug,
        }
    }
}
