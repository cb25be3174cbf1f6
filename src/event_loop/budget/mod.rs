//! The time that the phases of a turn may take: `io_ratio` as a formula, and the floor below which
//! a phase is not cut off.
//!
//! Invariants: the budget follows the time that I/O took and never exceeds the cap. A phase runs at
//! least one entry, and at least [`FLOOR`] entries while these are short. So progress is
//! guaranteed, and each poll is worth its cost. docs/fairness.md states the resulting bounds. Pure,
//! and owns nothing.

mod pace;
mod stopwatch;

pub(super) use pace::{Pace, Site};
pub(super) use stopwatch::{Span, Stopwatch};

use std::time::Duration;

/// The number of entries that a phase runs even without a budget, unless they take longer than
/// [`FLOOR_TIME`].
pub(crate) const FLOOR: u64 = 64;

/// The nanoseconds after which a phase without a budget ends, even if fewer than [`FLOOR`] entries
/// ran. A poll that does not sleep takes about 1 % of that.
pub(crate) const FLOOR_TIME: u64 = 100_000;

/// The default time limit for the tasks of a turn, and again for its timers.
pub(crate) const DEFAULT_MAX_TASK_TIME: Duration = Duration::from_millis(100);

/// The default time limit for the I/O of a turn. A turn with a thousand quick requests takes a
/// small part of it.
pub(crate) const DEFAULT_MAX_IO_TIME: Duration = Duration::from_millis(100);

/// The ratio that removes the limit.
pub(crate) const UNLIMITED: u8 = 100;

/// How a loop divides its time between I/O and the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The percentage of the busy time that I/O gets. [`UNLIMITED`] runs all waiting entries.
    pub(crate) io_ratio: u8,
    /// The upper limit of a share, in nanoseconds.
    pub(crate) cap: u64,
}

/// The time for tasks in one turn. Timers get the same time once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// A time in nanoseconds. It may be 0, in which case the floor applies ([`Limit`]).
    Time(u64),
    /// Unlimited time, for the entries that are waiting when the phase begins.
    Unlimited,
}

impl Budget {
    /// Returns the share after I/O took `io_time` nanoseconds: `io_time × (100 − r) / r`, but not
    /// more than the cap.
    pub(crate) fn after(self, io_time: u64) -> Share {
        if self.io_ratio >= UNLIMITED {
            return Share::Unlimited;
        }
        let ratio = u64::from(self.io_ratio);
        let budget = u128::from(io_time) * u128::from(100 - ratio) / u128::from(ratio.max(1));
        Share::Time(u64::try_from(budget).unwrap_or(u64::MAX).min(self.cap))
    }
}

impl Budget {
    /// Returns the time at which a phase that begins at `now` reaches the cap, or `None` without a
    /// limit.
    pub(crate) fn cap_until(self, now: u64) -> Option<u64> {
        (self.io_ratio < UNLIMITED).then(|| now.saturating_add(self.cap))
    }
}

impl Share {
    /// Returns when the share is used up, or `None` if it has no time limit.
    pub(crate) fn until(self, began: u64) -> Option<u64> {
        match self {
            Share::Time(time) => Some(began.saturating_add(time)),
            Share::Unlimited => None,
        }
    }
}

/// The end of a phase: its share is used up and its floor is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    until: Option<u64>,
    floor_until: u64,
}

impl Limit {
    /// Creates the limit of a phase that begins at `now`, with a share that lasts until `until`.
    pub(crate) fn new(until: Option<u64>, now: u64) -> Self {
        Limit { until, floor_until: now.saturating_add(FLOOR_TIME) }
    }

    /// Extends the limit by time that does not count towards the phase.
    pub(crate) fn later(self, by: u64) -> Self {
        Limit {
            until: self.until.map(|until| until.saturating_add(by)),
            floor_until: self.floor_until.saturating_add(by),
        }
    }

    /// Returns whether the phase has a time limit.
    pub(crate) fn is_time(self) -> bool {
        self.until.is_some()
    }

    /// Returns whether a phase that has run `ran` entries ends at `now`.
    pub(crate) fn is_reached(self, ran: u64, now: u64) -> bool {
        self.until.is_some_and(|until| now >= until) && (ran >= FLOOR || ran > 0 && now >= self.floor_until)
    }

    /// Returns how many entries may have run by the next clock reading, if `ran` have run and
    /// `batch` are to follow. The floor limits the result, so that a phase without a budget ends
    /// exactly there.
    #[inline]
    pub(crate) fn next_reading(self, ran: u64, batch: u64) -> u64 {
        if self.until.is_none() {
            return u64::MAX;
        }
        let next = ran + batch;
        if ran < FLOOR { next.min(FLOOR) } else { next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(io_time: u64, io_ratio: u8) -> Share {
        Budget { io_ratio, cap: u64::MAX }.after(io_time)
    }

    #[test]
    fn e_35_the_budget_follows_the_ratio() {
        assert_eq!(after(1_000, 50), Share::Time(1_000));
        assert_eq!(after(1_000, 80), Share::Time(250));
        assert_eq!(after(1_000, 20), Share::Time(4_000));
        assert_eq!(after(1_000, 1), Share::Time(99_000));
        assert_eq!(after(u64::MAX, 1), Share::Time(u64::MAX));
    }

    #[test]
    fn e_34_a_ratio_of_100_is_no_limit() {
        assert_eq!(after(1_000, 100), Share::Unlimited);
        assert_eq!(after(0, 100), Share::Unlimited);
    }

    #[test]
    fn e_36_no_io_is_a_budget_of_zero() {
        assert_eq!(after(0, 50), Share::Time(0));
    }

    #[test]
    fn e_41_the_budget_never_exceeds_the_cap() {
        for io_ratio in 1..100 {
            let budget = Budget { io_ratio, cap: 5_000 };
            assert_eq!(budget.after(u64::MAX), Share::Time(5_000), "{io_ratio}");
        }
        assert_eq!(Budget { io_ratio: 100, cap: 5_000 }.after(u64::MAX), Share::Unlimited);
    }

    #[test]
    fn a_phase_without_a_budget_runs_64_short_entries_or_one_slow_one() {
        let limit = Limit::new(Some(1_000), 1_000);
        assert!(!limit.is_reached(0, u64::MAX), "at least one");
        assert!(!limit.is_reached(63, 1_000 + FLOOR_TIME - 1));
        assert!(limit.is_reached(64, 1_000));
        assert!(limit.is_reached(1, 1_000 + FLOOR_TIME));
        assert_eq!(
            (limit.next_reading(0, 32), limit.next_reading(50, 32), limit.next_reading(64, 32)),
            (32, 64, 96)
        );
    }

    #[test]
    fn a_phase_with_a_budget_ends_when_that_is_spent() {
        let limit = Limit::new(Some(5_000_000), 0);
        assert!(!limit.is_reached(1_000_000, 4_999_999));
        assert!(limit.is_reached(1, 5_000_000));
        let unlimited = Limit::new(None, 0);
        assert!(!unlimited.is_reached(u64::MAX, u64::MAX));
        assert_eq!(unlimited.next_reading(7, 1), u64::MAX);
    }
}
