//! Decides whether a loop may sleep, and for how long.
//!
//! With busy polling, the loop polls without a timeout for a while after its last work: I/O, tasks
//! or timers, but not a spurious wakeup. It publishes no sleep in that time, so submitters do not
//! write to the waker. The time comes from the last poll, so no extra clock reading is needed.
//!
//! A clock that may get ahead of the poll's own, such as `BootClock` after a suspend, limits the
//! sleep towards a deadline ([`Clock::longest_sleep`](crate::clock::Clock::longest_sleep)).
//!
//! Invariant: a sleep that such a bound has shortened ends at a deadline like any other. So it
//! counts neither as premature nor as work. Runs on the loop's thread. Time is an argument.

use crate::clock::nanos;
use std::time::Duration;

/// The longest sleep without a clock reading. Keeps timeouts within the range of the operating
/// system's poll.
const MAX_SLEEP: u64 = 24 * 60 * 60 * 1_000_000_000;

/// The shortest bound that a clock can set. A shorter bound would prevent sleeping.
const MIN_BOUND: u64 = 1_000_000;

pub(crate) struct Sleep {
    /// The longest sleep before a deadline.
    longest: u64,
    /// How long a loop polls without sleeping after its last work.
    busy_poll: u64,
    busy_until: u64,
    /// The longest sleep in the current turn. Set for manual loops.
    pub(crate) at_most: Option<u64>,
}

impl Sleep {
    /// Creates the settings for a clock that bounds sleeps to `longest`, and a time of busy
    /// polling.
    pub(crate) fn new(longest: Option<Duration>, busy_poll: Duration) -> Self {
        let longest = longest.map_or(MAX_SLEEP, |longest| nanos(longest).clamp(MIN_BOUND, MAX_SLEEP));
        Sleep { longest, busy_poll: nanos(busy_poll), busy_until: 0, at_most: None }
    }

    /// Records that work was done at `now`.
    #[inline]
    pub(crate) fn worked(&mut self, now: u64) {
        self.busy_until = now.saturating_add(self.busy_poll);
    }

    /// Returns whether the loop has to stay awake although no work is waiting.
    #[inline]
    pub(crate) fn is_forbidden(&self, now: u64) -> bool {
        (self.busy_poll > 0 && now < self.busy_until) || self.at_most == Some(0)
    }

    /// Returns when a sleep that begins at `now` ends, if the next deadline is `deadline`.
    #[inline]
    pub(crate) fn until(&self, deadline: Option<u64>, now: u64) -> Option<u64> {
        let deadline = deadline.map(|at| at.min(now.saturating_add(self.longest)));
        match self.at_most {
            None => deadline,
            Some(at_most) => {
                let bound = now.saturating_add(at_most.min(MAX_SLEEP));
                Some(deadline.map_or(bound, |at| at.min(bound)))
            }
        }
    }

    /// Returns the poll's timeout on a manual clock, where deadlines do not come nearer during a
    /// sleep.
    pub(crate) fn timeout_in_manual_time(&self) -> Option<Duration> {
        self.at_most.map(|at_most| Duration::from_nanos(at_most.min(MAX_SLEEP)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_sleep_ends_at_the_nearest_of_deadline_and_bounds() {
        let mut sleep = Sleep::new(None, Duration::ZERO);
        assert!(!sleep.is_forbidden(0));
        assert_eq!(sleep.until(None, 5), None);
        assert_eq!(sleep.until(Some(7), 5), Some(7));
        assert_eq!(sleep.until(Some(u64::MAX), 5), Some(5 + MAX_SLEEP));
        sleep.at_most = Some(1);
        assert_eq!((sleep.until(None, 5), sleep.until(Some(7), 5)), (Some(6), Some(6)));
        sleep.at_most = Some(u64::MAX);
        assert_eq!((sleep.until(None, 5), sleep.until(Some(7), 5)), (Some(5 + MAX_SLEEP), Some(7)));
        sleep.at_most = Some(0);
        assert!(sleep.is_forbidden(0));
    }

    #[test]
    fn the_bound_of_a_clock_applies_if_there_is_a_deadline() {
        let sleep = Sleep::new(Some(Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(sleep.until(None, 5), None);
        assert_eq!(sleep.until(Some(3600 * SECOND), 5), Some(5 + SECOND));
        assert_eq!(sleep.until(Some(SECOND), 5), Some(SECOND));
        let hasty = Sleep::new(Some(Duration::ZERO), Duration::ZERO);
        assert_eq!(hasty.until(Some(SECOND), 0), Some(MIN_BOUND), "no clock can prevent sleeping");
    }

    #[test]
    fn busy_polling_ends_some_time_after_the_last_work() {
        let mut sleep = Sleep::new(None, Duration::from_nanos(10));
        assert!(!sleep.is_forbidden(0), "there was no work yet");
        sleep.worked(100);
        assert!(sleep.is_forbidden(100) && sleep.is_forbidden(109) && !sleep.is_forbidden(110));
        sleep.worked(105);
        assert!(sleep.is_forbidden(114) && !sleep.is_forbidden(115));
        let mut never = Sleep::new(None, Duration::ZERO);
        never.worked(100);
        assert!(!never.is_forbidden(100));
    }
}
