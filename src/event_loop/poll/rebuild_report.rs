//! The cause and the result of a rebuild of the poll.
//!
//! Plain data. `turn::rebuild` replaces the poll.

use std::{fmt, time::Duration};

/// The reason for replacing a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebuildCause {
    /// The program called [`EventLoop::rebuild_poll`](crate::EventLoop::rebuild_poll).
    Asked,
    /// The poll kept returning without a reason.
    Premature,
    /// The poll failed.
    PollFailed {
        /// Whether no such failure was logged in the minute before.
        first: bool,
    },
}

/// The result of replacing a poll. See [`EventLoop::rebuild_poll`](crate::EventLoop::rebuild_poll).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollRebuild {
    /// The reason for the rebuild.
    pub cause: RebuildCause,
    /// The number of the replaced poll. The first poll of a loop has the number 1.
    pub old_poll: u64,
    /// The number of the new poll.
    pub new_poll: u64,
    /// Listeners, connections, pending outbound connections, event sources and datagram channels
    /// that were moved.
    pub moved: usize,
    /// Sources that could not be moved and were closed with the error.
    pub closed: usize,
    /// The duration of the rebuild, on the loop's clock.
    pub took: Duration,
}

impl fmt::Display for RebuildCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RebuildCause::Asked => "requested",
            RebuildCause::Premature => "premature wakeups",
            RebuildCause::PollFailed { .. } => "poll error",
        })
    }
}

impl fmt::Display for PollRebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PollRebuild { cause, old_poll, new_poll, moved, closed, took } = self;
        write!(f, "poll rebuilt ({cause}): {moved} sources moved, {closed} closed; ")?;
        write!(f, "poll {new_poll} replaced poll {old_poll} in {took:?}")
    }
}

impl RebuildCause {
    /// Returns the log level. A requested rebuild is less severe than one that the loop has to
    /// make. Repeated failures of a poll are logged at debug level.
    pub(in crate::event_loop) fn level(self) -> log::Level {
        match self {
            RebuildCause::Asked => log::Level::Info,
            RebuildCause::Premature | RebuildCause::PollFailed { first: true } => log::Level::Warn,
            RebuildCause::PollFailed { first: false } => log::Level::Debug,
        }
    }
}
