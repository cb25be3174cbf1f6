//! The entries of a loop's heap.

use super::timer_token::TimerToken;
use crate::{clock::TimeSource, id::Key, timer::QueueKey};
use std::{panic::Location, sync::Arc};

/// An entry of a loop's heap.
pub(crate) enum Due {
    /// A timer of a channel.
    Channel(TimerToken),
    /// A timer of another source: a pause in accepting, or the timeout of a connection attempt.
    Source(Key),
    /// A channel has reached its maximum age, or the end of its grace time.
    Ages,
    /// A task of the loop.
    Task(Arc<dyn Scheduled>),
}

/// A scheduled task of the loop.
pub(crate) trait Scheduled: Send + Sync {
    /// Runs the task. Returns the next deadline of a periodic task that continues.
    fn run(&self, time: &TimeSource) -> Option<u64>;

    /// Notifies the task that it will not run (again).
    fn abandon(&self);

    /// Returns the call site that scheduled the task, for reports.
    fn origin(&self) -> &'static Location<'static>;

    /// Returns whether the task belongs to a reply in flight. A shutdown then cancels it together
    /// with outgoing connections, and not when it begins.
    fn lasts(&self) -> bool {
        false
    }

    /// Returns whether the task is waiting to run.
    fn is_waiting(&self) -> bool;

    /// Stores the key of the task's entry in the heap, for cancelling. Called by the loop.
    fn set_queue_key(&self, queue_key: Option<QueueKey>);

    /// Returns the key of the task's entry in the heap.
    fn queue_key(&self) -> Option<QueueKey>;
}
