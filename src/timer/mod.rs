//! The two structures that know when something is due: a coarse wheel and an exact heap.
//!
//! | | [`Wheel`] | [`ScheduledQueue`] |
//! |---|---|---|
//! | Deadlines | rounded up to a tick | exact to the nanosecond |
//! | Arm, cancel, move | O(1) | O(log n) |
//! | Move to a later deadline | one store | O(log n) |
//! | Order | by tick, then as armed | by deadline, then as first scheduled |
//! | Meant for | idle, heartbeat, write and connect timeouts: many, mostly cancelled | scheduled and periodic tasks: fewer, mostly run |
//!
//! A program with an event loop uses both through that. [`HashedWheelTimer`] is a wheel with a thread of its own around
//! it, for programs that only want the timer: its timeouts are added and cancelled from any thread.
//!
//! What always holds of the two structures: time is an argument. Both count nanoseconds since a start that their owner
//! chose, as `u64` (584 years), and read no clock; neither blocks, spawns a thread or calls back.
//! Nothing fires before its deadline, and all arithmetic on time saturates. Both hand out keys that
//! carry a generation: a late cancel finds nothing rather than somebody else's entry.
//!
//! Who runs them: one owner, commonly the thread of an event loop, through `&mut self`. How many
//! due entries are taken in a turn, and how long to sleep in between, is the owner's decision; what the timer with its
//! thread decides is in `hashed_wheel_timer`.
//!
//! What they cost, and how to choose a tick and the number of slots: `docs/timers.md`.

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

pub use entries::WheelKey;
pub use hashed_wheel_timer::{HashedWheelTimer, HashedWheelTimerBuilder, Timeout};
pub use queue::{Due, QueueKey, ScheduledQueue};
pub use wheel::Wheel;
pub use wheel_builder::WheelBuilder;

/// Returns the deadline that lies `delay` after `now`, both counted in nanoseconds.
///
/// Saturates at [`u64::MAX`], which a clock does not reach: such an entry is held until it is
/// cancelled.
///
/// ```
/// use std::time::Duration;
/// use netwheel::timer::deadline_after;
///
/// assert_eq!(deadline_after(5, Duration::from_micros(1)), 1_005);
/// assert_eq!(deadline_after(5, Duration::MAX), u64::MAX);
/// ```
pub fn deadline_after(now: u64, delay: Duration) -> u64 {
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
