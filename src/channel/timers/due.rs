//! The entries of a loop's heap.

use super::timer_token::TimerToken;
use crate::{clock::TimeSource, id::Key, timer::QueueKey};
use std::{panic::Location, sync::Arc};

/// What becomes due in a loop's heap.
pub(crate) enum Due {
    /// A timer of a channel.
    Channel(TimerToken),
    /// A timer of another source: accepting again, a connection attempt that takes too long.
    Source(Key),
    /// A task of the loop.
    Task(Arc<dyn Scheduled>),
}

/// A task of the loop that waits for its time.
pub(crate) trait Scheduled: Send + Sync {
    /// Runs it; the next deadline if it is periodic and goes on.
    fn run(&self, time: &TimeSource) -> Option<u64>;

    /// Tells it that it will never run (again).
    fn abandon(&self);

    /// Where it was scheduled, for reports.
    fn origin(&self) -> &'static Location<'static>;

    /// Whether it is still to run.
    fn is_waiting(&self) -> bool;

    /// Where in the heap it waits, so that a cancel finds it; for the loop's own use.
    fn set_place(&self, place: Option<QueueKey>);

    /// Where in the heap it waits.
    fn place(&self) -> Option<QueueKey>;
}
