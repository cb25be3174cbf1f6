//! When a task of a channel runs.

use super::delay::Delay;
use crate::clock::nanos;

/// The time of a task: at a deadline, or in the tick of the wheel after it.
#[derive(Clone, Copy)]
pub(crate) enum TaskTime {
    Exact(u64),
    Coarse(u64),
}

impl TaskTime {
    /// Returns the time of a task whose delay counts from `now`.
    #[inline]
    pub(crate) fn at(delay: Delay, now: u64) -> Self {
        let deadline = now.saturating_add(nanos(delay.duration()));
        if delay.is_coarse() { TaskTime::Coarse(deadline) } else { TaskTime::Exact(deadline) }
    }

    /// Returns the deadline, before it is rounded up to a tick.
    pub(crate) fn deadline(self) -> u64 {
        match self {
            TaskTime::Exact(deadline) | TaskTime::Coarse(deadline) => deadline,
        }
    }
}
