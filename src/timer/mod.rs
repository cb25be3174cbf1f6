//! A timer for programs without event loops: [`HashedWheelTimer`].
//!
//! It adds a thread to a hashed wheel. Any thread can add and cancel its timeouts. Programs with
//! event loops schedule tasks on a loop or a channel instead. For costs, and how to choose a tick
//! and the number of slots, see `docs/timers.md`.

// Timing structures: a coarse hashed wheel and an exact heap.
//
// | | `Wheel` | `ScheduledQueue` |
// |---|---|---|
// | Deadlines | rounded up to a tick | exact to the nanosecond |
// | Arm, cancel, move | O(1) | O(log n) |
// | Move to a later deadline | one store | O(log n) |
// | Order | by tick, then as armed | by deadline, then as first scheduled |
// | Meant for | idle, heartbeat, write and connect timeouts: many, mostly cancelled | scheduled and periodic tasks: fewer, mostly run |
//
// # Invariants
//
// - Time is an argument. Both structures count nanoseconds since a start chosen by their owner, as
//   `u64` (584 years). They do not read a clock, block, spawn threads or call back.
// - Entries never expire before their deadline. All arithmetic on time saturates.
// - Keys carry a generation, so a late cancel never affects an entry that reuses the place.
//
// # Thread
//
// Each structure has one owner, usually the thread of an event loop, and is used through
// `&mut self`. The owner decides how many expired entries to take in a turn and how long to sleep
// between turns. For the timer that has its own thread, `hashed_wheel_timer` makes these
// decisions.

mod entries;
mod hashed_wheel_timer;
mod level;
mod levels;
mod lists;
mod queue;
mod tick;
mod wheel;
mod wheel_builder;

use std::time::Duration;

pub use hashed_wheel_timer::{HashedWheelTimer, HashedWheelTimerBuilder, Timeout};
// Public only for the benchmarks and tests of this crate. Their stability is not promised.
#[doc(hidden)]
pub use {
    entries::WheelKey,
    queue::{DueEntry, QueueKey, ScheduledQueue},
    wheel::Wheel,
    wheel_builder::WheelBuilder,
};

/// Returns `now` plus `delay`, in nanoseconds.
///
/// Saturates at [`u64::MAX`], which a clock never reaches. An entry with that deadline is held
/// until it is cancelled.
pub(crate) fn deadline_after(now: u64, delay: Duration) -> u64 {
    let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    now.saturating_add(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_03_deadline_saturates() {
        let millis = Duration::from_millis(i64::MAX as u64);
        assert_eq!(deadline_after(1, millis), u64::MAX);
        assert_eq!(deadline_after(u64::MAX, Duration::from_nanos(1)), u64::MAX);

        let mut queue = ScheduledQueue::new();
        let key = queue.insert(deadline_after(1, millis), ());
        assert!(queue.pop_due(i64::MAX as u64).is_none());
        assert_eq!(queue.cancel(key), Some(()));
    }
}
