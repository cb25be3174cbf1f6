//! The handle of a scheduled task, of a loop or of a channel.
//!
//! Invariant: a handle does not keep its task alive, and dropping it does not end the task. Any
//! thread uses it.

use crate::{clock::TimeSource, sync::Completion};
use std::{
    fmt,
    panic::Location,
    sync::Arc,
    time::{Duration, Instant},
};

/// The part of a scheduled task that its handle reaches.
pub(crate) trait TaskControl: Send + Sync {
    /// Ends the task before its next run. Returns whether this call ended it.
    fn cancel(self: Arc<Self>) -> bool;

    /// Returns when the next run is due, in nanoseconds of the loop.
    fn deadline(&self) -> Option<u64>;

    /// Returns the time of the loop.
    fn time(&self) -> &TimeSource;

    /// Returns the call site that scheduled the task.
    fn origin(&self) -> &'static Location<'static>;
}

/// The deadline of a task that never runs, and of one that runs without a deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// A handle to a scheduled task of an [`EventLoop`](crate::EventLoop) or a
/// [`Channel`](crate::Channel).
///
/// Dropping the handle does not cancel the task, and neither does dropping its
/// [`completion`](ScheduledTask::completion). [`cancel`](ScheduledTask::cancel) does.
///
/// ```
/// use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};
/// use std::time::Duration;
///
/// let mut session = EmbeddedChannel::new(Pipeline::codec(Line::new()).on_read(|_, _| Ok(())));
/// let minute = Duration::from_secs(60);
/// let reminder = session.channel().schedule(minute, |ctx| ctx.write("still here?".into()))?;
/// assert_eq!(reminder.remaining(), Some(minute));
///
/// session.advance(minute / 2);
/// assert_eq!(reminder.remaining(), Some(minute / 2));
/// assert!(reminder.cancel() && reminder.is_done());
/// session.advance(minute);
/// assert!(session.read_outbound().is_empty());
/// # Ok::<(), netwheel::Error>(())
/// ```
#[doc(alias = "ScheduledFuture")]
pub struct ScheduledTask<T = ()> {
    task: Arc<dyn TaskControl>,
    completion: Completion<T>,
}

impl<T> ScheduledTask<T> {
    pub(crate) fn new(task: Arc<dyn TaskControl>, completion: Completion<T>) -> Self {
        ScheduledTask { task, completion }
    }

    /// Cancels the task. May be called from any thread.
    ///
    /// Returns `true` if this call ended the task: a one-shot task will not run, and a periodic
    /// task will not run again. Its closure is dropped before this returns, or after the current
    /// run if there is one. Returns `false` if the task has ended, was cancelled before, or is a
    /// one-shot task that is running.
    pub fn cancel(&self) -> bool {
        self.task.clone().cancel()
    }

    /// Returns whether the task has ended: it has run, failed or was cancelled. Otherwise it is
    /// pending or running.
    pub fn is_done(&self) -> bool {
        self.completion.is_done()
    }

    /// Returns the time at which the next run is due, on the loop's clock. With a
    /// [coarse](crate::time::Delay::coarse) delay the task runs in the wheel tick after it.
    ///
    /// Returns `None` if the task has ended or is running, or if it never runs because its delay is
    /// beyond the range of the clock. Also returns `None` for tasks that [run at the end of a
    /// turn](crate::EventLoop::execute_at_turn_end).
    pub fn deadline(&self) -> Option<Instant> {
        self.task.deadline().map(|at| self.task.time().instant(at))
    }

    /// Returns the time from now to the [deadline](ScheduledTask::deadline) on the loop's clock.
    /// Zero if the task is due. `None` if there is no deadline.
    #[doc(alias = "getDelay")]
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.task.deadline()?;
        Some(Duration::from_nanos(deadline.saturating_sub(self.task.time().now())))
    }

    /// Returns the completion of the task, which delivers the value of a one-shot task or the error
    /// that ended a periodic one.
    ///
    /// | the task | result |
    /// |---|---|
    /// | was cancelled | [`Error::Cancelled`](crate::Error::Cancelled) |
    /// | of a loop, was ended by a shutdown | [`Error::ShutDown`](crate::Error::ShutDown) |
    /// | panicked | [`Error::Panicked`](crate::Error::Panicked) |
    /// | of a channel that closed first | [`Error::Closed`](crate::Error::Closed) |
    /// | of a channel whose pipeline was replaced first | [`Error::PipelineReplaced`](crate::Error::PipelineReplaced) |
    /// | of a channel that has reached its limit of tasks | [`Error::Full`](crate::Error::Full) |
    pub fn completion(self) -> Completion<T> {
        self.completion
    }
}

impl<T> fmt::Debug for ScheduledTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledTask")
            .field("origin", &format_args!("{}", self.task.origin()))
            .field("done", &self.is_done())
            .finish()
    }
}
