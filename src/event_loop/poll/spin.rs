//! Detects that a loop spins without doing any work, and decides on the remedy.
//!
//! - The poll returns prematurely [`DEFAULT_REBUILD_THRESHOLD`] times in a row. It is rebuilt, at
//!   most [`REBUILDS_PER_MINUTE`] times a minute. After that the loop rests at each further return.
//! - The same overdue deadline stays unserved for 512 turns in a row. The loop rests at each
//!   further turn.
//! - The waker wakes the loop 512 times in a row without work. This is only logged, because it ends
//!   when the other thread stops.
//! - A poll fails. It is replaced each time, after a rest that `turn::poll_phase` chooses.
//!
//! Invariants: any I/O, task or timer resets the counts. The log gets at most
//! [`REBUILDS_PER_MINUTE`] + 1 lines a minute about premature returns. It gets one line a minute
//! about each of the other signs. Pure: times are arguments, in nanoseconds. Runs on the loop's
//! thread.

/// The number of consecutive premature returns after which the poll is rebuilt, as in Netty. High
/// enough not to be reached by chance, low enough to end a spin within milliseconds.
pub(crate) const DEFAULT_REBUILD_THRESHOLD: u32 = 512;

/// The maximum number of automatic rebuilds per minute.
pub(crate) const REBUILDS_PER_MINUTE: usize = 3;

/// The number of turns with the same overdue deadline and no work after which the loop counts as
/// stuck.
const STUCK_AFTER: u32 = 512;

/// The number of consecutive wakes without work after which a warning is logged.
const VAIN_AFTER: u32 = 512;

const MINUTE: u64 = 60 * 1_000_000_000;

pub(crate) struct SpinGuard {
    premature: u32,
    /// Values below 3 disable rebuilding.
    threshold: u32,
    /// The times of the last rebuilds, oldest first.
    rebuilds: [Option<u64>; REBUILDS_PER_MINUTE],
    /// When the log last reported that rebuilding does not help.
    warned: Option<u64>,
    /// When the log last reported that the poll fails.
    failed: Option<u64>,
    /// The number of consecutive wakes without work, and when the log last reported it.
    vain: u32,
    vain_logged: Option<u64>,
    stuck: Stuck,
}

#[derive(Default)]
struct Stuck {
    deadline: u64,
    turns: u32,
    /// When the log last reported it.
    warned: Option<u64>,
}

/// The reaction to a sign of spinning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    Nothing,
    /// Move to a new poll.
    Rebuild,
    /// Sleep a little, so that the loop does not occupy a whole core. Log it if `tell` is set.
    Rest {
        tell: bool,
    },
}

impl SpinGuard {
    pub(crate) fn new(threshold: u32) -> Self {
        let rebuilds = [None; REBUILDS_PER_MINUTE];
        SpinGuard {
            premature: 0,
            threshold,
            rebuilds,
            warned: None,
            failed: None,
            vain: 0,
            vain_logged: None,
            stuck: Stuck::default(),
        }
    }

    /// Records that the loop did some work, or slept until its deadline.
    #[inline]
    pub(crate) fn worked(&mut self) {
        self.premature = 0;
        self.vain = 0;
        self.stuck.turns = 0;
    }

    /// Records a premature return of the poll.
    pub(crate) fn premature(&mut self, now: u64) -> Remedy {
        self.premature = self.premature.saturating_add(1);
        if self.threshold < 3 || self.premature < self.threshold {
            return Remedy::Nothing;
        }
        let [oldest, ..] = self.rebuilds;
        if oldest.is_some_and(|at| now.saturating_sub(at) < MINUTE) {
            return Remedy::Rest { tell: once_a_minute(&mut self.warned, now) };
        }
        self.rebuilds.rotate_left(1);
        self.rebuilds[REBUILDS_PER_MINUTE - 1] = Some(now);
        Remedy::Rebuild
    }

    /// Records that the poll was rebuilt, for any reason. The count starts again for the new poll.
    pub(crate) fn rebuilt(&mut self) {
        self.premature = 0;
    }

    /// Records a failure of the poll. Returns whether to log it: a poll that fails every other time
    /// would otherwise fill the log.
    pub(crate) fn may_log_failure(&mut self, now: u64) -> bool {
        once_a_minute(&mut self.failed, now)
    }

    /// Records a wake by another thread without any work. Returns whether to log that this happens
    /// repeatedly.
    pub(crate) fn woken_in_vain(&mut self, now: u64) -> bool {
        self.vain = self.vain.saturating_add(1);
        self.vain >= VAIN_AFTER && once_a_minute(&mut self.vain_logged, now)
    }

    /// Records a turn that did no work although its next deadline has passed.
    pub(crate) fn overdue(&mut self, deadline: u64, now: u64) -> Remedy {
        let stuck = &mut self.stuck;
        if stuck.turns == 0 || stuck.deadline != deadline {
            (stuck.deadline, stuck.turns) = (deadline, 1);
            return Remedy::Nothing;
        }
        stuck.turns = stuck.turns.saturating_add(1);
        if stuck.turns < STUCK_AFTER {
            return Remedy::Nothing;
        }
        Remedy::Rest { tell: once_a_minute(&mut stuck.warned, now) }
    }
}

fn once_a_minute(last: &mut Option<u64>, now: u64) -> bool {
    let tell = last.is_none_or(|at| now.saturating_sub(at) >= MINUTE);
    if tell {
        *last = Some(now);
    }
    tell
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the remedies for `returns` premature returns at one time, without
    /// [`Remedy::Nothing`].
    fn premature(guard: &mut SpinGuard, returns: u32, now: u64) -> Vec<Remedy> {
        (0..returns).map(|_| guard.premature(now)).filter(|remedy| *remedy != Remedy::Nothing).collect()
    }

    /// Like `premature`, but resets the count after a rebuild, as the loop does.
    fn spin(guard: &mut SpinGuard, returns: u32, now: u64) -> (usize, usize, usize) {
        let (mut rebuilds, mut rests, mut told) = (0, 0, 0);
        for _ in 0..returns {
            match guard.premature(now) {
                Remedy::Rebuild => {
                    rebuilds += 1;
                    guard.rebuilt();
                }
                Remedy::Rest { tell } => {
                    rests += 1;
                    told += usize::from(tell);
                }
                Remedy::Nothing => {}
            }
        }
        (rebuilds, rests, told)
    }

    #[test]
    fn e_43_threshold_is_512_and_below_3_is_off() {
        assert_eq!(DEFAULT_REBUILD_THRESHOLD, 512);
        for (threshold, rebuilds) in [(512, 1), (3, 1), (2, 0), (0, 0)] {
            let mut guard = SpinGuard::new(threshold);
            let remedies = premature(&mut guard, threshold.max(600), 0);
            assert_eq!(
                remedies.iter().filter(|r| **r == Remedy::Rebuild).count() >= 1,
                rebuilds == 1,
                "{threshold}"
            );
        }
    }

    #[test]
    fn e_44_any_work_resets_the_count() {
        let mut guard = SpinGuard::new(3);
        assert_eq!(premature(&mut guard, 2, 0), []);
        guard.worked();
        assert_eq!(premature(&mut guard, 2, 0), []);
        assert_eq!(premature(&mut guard, 1, 0), [Remedy::Rebuild]);
    }

    #[test]
    fn e_48_the_count_restarts_with_the_second_poll() {
        let mut guard = SpinGuard::new(3);
        assert_eq!(premature(&mut guard, 3, 0), [Remedy::Rebuild]);
        guard.rebuilt();
        assert_eq!(premature(&mut guard, 2, 0), []);
    }

    #[test]
    fn rebuild_capped() {
        let mut guard = SpinGuard::new(512);
        // A poll that no rebuild repairs, at a thousand returns per millisecond, for ten minutes.
        for minute in 0..10 {
            let (rebuilds, rests, told) = spin(&mut guard, 100_000, minute * MINUTE);
            assert_eq!((rebuilds, told), (REBUILDS_PER_MINUTE, 1), "minute {minute}");
            assert!(
                rests >= 100_000 - (REBUILDS_PER_MINUTE + 1) * 512,
                "the loop rests at each further return"
            );
        }
        // The window slides: three rebuilds at once, then another whenever one of them is a minute
        // old.
        let mut guard = SpinGuard::new(3);
        let at = |guard: &mut SpinGuard, second: u64| spin(guard, 3, second * 1_000_000_000).0;
        assert_eq!(
            [0, 10, 20, 30, 59, 60, 61, 70, 79, 80].map(|second| at(&mut guard, second)),
            [1, 1, 1, 0, 0, 1, 0, 1, 0, 1]
        );
    }

    #[test]
    fn a_flood_of_wakes_is_logged_once_a_minute_and_any_work_ends_it() {
        let mut guard = SpinGuard::new(512);
        let told =
            |guard: &mut SpinGuard, wakes: u32, now| (0..wakes).filter(|_| guard.woken_in_vain(now)).count();
        assert_eq!(told(&mut guard, VAIN_AFTER - 1, 5), 0);
        assert_eq!(told(&mut guard, 100_000, 5), 1);
        assert_eq!(told(&mut guard, 100_000, 5 + MINUTE), 1);
        guard.worked();
        assert_eq!(told(&mut guard, VAIN_AFTER - 1, 5 + 2 * MINUTE), 0);
        assert_eq!(told(&mut guard, 1, 5 + 2 * MINUTE), 1);
        assert_eq!(guard.premature(0), Remedy::Nothing, "wakes do not count as premature returns");
    }

    #[test]
    fn timer_nonmoving_deadline_guard() {
        let mut guard = SpinGuard::new(512);
        let turns = |guard: &mut SpinGuard, deadline, n: u32, now| -> Vec<Remedy> {
            (0..n).map(|_| guard.overdue(deadline, now)).filter(|remedy| *remedy != Remedy::Nothing).collect()
        };
        assert_eq!(turns(&mut guard, 5, STUCK_AFTER - 1, 10), []);
        assert_eq!(
            turns(&mut guard, 5, 3, 10),
            [Remedy::Rest { tell: true }, Remedy::Rest { tell: false }, Remedy::Rest { tell: false }]
        );
        assert_eq!(turns(&mut guard, 6, STUCK_AFTER - 1, 10), [], "a deadline that moves is not stuck");
        guard.worked();
        assert_eq!(
            turns(&mut guard, 6, STUCK_AFTER - 1, 10),
            [],
            "a deadline after which something ran is not stuck"
        );
        assert_eq!(turns(&mut guard, 6, 1, 10 + MINUTE), [Remedy::Rest { tell: true }]);
    }
}
