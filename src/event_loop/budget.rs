//! How long tasks and timers may run in one turn: ioRatio as a formula.
//!
//! Always holds: the budget follows the time that I/O took, is never more than the cap, and is only a time: whoever
//! spends it looks at the clock every [`TASKS_PER_CHECK`] steps, so at least that many steps are made in every turn
//! (the floor) and at most that many too many. docs/fairness.md states the bounds that follow. Pure; owns nothing.

use std::time::Duration;

/// Tasks, or timers, between two looks at the clock, as in Netty: reading it for every one would cost more than most
/// tasks.
pub(crate) const TASKS_PER_CHECK: usize = 64;

/// The most time that tasks get in a turn, and timers once more, if nobody says otherwise.
pub(crate) const DEFAULT_MAX_TASK_TIME: Duration = Duration::from_millis(100);

/// The ratio at which there is no limit.
pub(crate) const UNLIMITED: u8 = 100;

/// How a loop divides its time between I/O and the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Percent of the busy time that I/O gets; [`UNLIMITED`]: whatever waits is run.
    pub(crate) io_ratio: u8,
    /// The most that is given, in nanoseconds.
    pub(crate) cap: u64,
}

/// What tasks get in one turn, and timers once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// So many nanoseconds. It may be 0: then [`TASKS_PER_CHECK`] of them run.
    Time(u64),
    /// As long as it takes to run those that wait when their phase begins.
    Unlimited,
}

impl Budget {
    /// The share after I/O took `io_time` nanoseconds: `io_time × (100 − r) / r`, but not more than the cap.
    pub(crate) fn after(self, io_time: u64) -> Share {
        if self.io_ratio >= UNLIMITED {
            return Share::Unlimited;
        }
        let ratio = u64::from(self.io_ratio);
        let budget = u128::from(io_time) * u128::from(100 - ratio) / u128::from(ratio.max(1));
        Share::Time(u64::try_from(budget).unwrap_or(u64::MAX).min(self.cap))
    }
}

impl Share {
    /// When it is used up, if that is a matter of time.
    pub(crate) fn until(self, began: u64) -> Option<u64> {
        match self {
            Share::Time(time) => Some(began.saturating_add(time)),
            Share::Unlimited => None,
        }
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
    fn e_41_no_ratio_gives_more_than_the_cap() {
        for io_ratio in 1..100 {
            let budget = Budget { io_ratio, cap: 5_000 };
            assert_eq!(budget.after(u64::MAX), Share::Time(5_000), "{io_ratio}");
        }
        assert_eq!(Budget { io_ratio: 100, cap: 5_000 }.after(u64::MAX), Share::Unlimited);
    }
}
