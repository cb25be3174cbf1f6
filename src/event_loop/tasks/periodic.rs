//! The next run of a periodic task.
//!
//! Invariants: a deadline is never earlier than the period says, and later by less than the jitter.
//! The jitter of one run does not move the next. Random numbers are an argument. Times are in
//! nanoseconds.

use crate::{Error, Result, clock::nanos, sync::Random};
use std::time::Duration;

/// The treatment of runs of a fixed-rate task whose time passed while the loop was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedRuns {
    /// Skips missed runs. The next run is at the next multiple of the period. This is the default.
    #[default]
    Skip,
    /// Makes up for missed runs, one per turn of the loop, like Netty.
    CatchUp,
}

/// Options for the repetition of a periodic task. Converts from a [`MissedRuns`].
///
/// ```
/// use netwheel::{EventLoopGroup, Periodic};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// // Without jitter, many tasks that start together would all run in the same millisecond.
/// let spread = Periodic::new().jitter(Duration::from_secs(3));
/// let minute = Duration::from_secs(60);
/// let task = group.next().schedule_at_fixed_rate_with(spread, minute, minute, || Ok(()))?;
/// assert!(task.cancel());
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Periodic {
    missed: MissedRuns,
    jitter: Duration,
}

impl Periodic {
    /// Returns the defaults: missed runs are skipped, and the jitter is zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the treatment of missed runs. Has no effect on tasks with a fixed delay, which cannot
    /// miss runs.
    pub fn missed_runs(mut self, missed: MissedRuns) -> Self {
        self.missed = missed;
        self
    }

    /// Delays each run by a random time, uniformly distributed from zero to less than `jitter`. The
    /// delay of one run does not move later ones. The default is zero, which means no jitter. It
    /// must not be longer than the period or delay.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }
}

impl From<MissedRuns> for Periodic {
    fn from(missed: MissedRuns) -> Self {
        Periodic::new().missed_runs(missed)
    }
}

/// The repetition of one task.
#[derive(Debug, Clone, Copy)]
pub(in crate::event_loop) struct Repeat {
    every: Every,
    jitter: u64,
}

#[derive(Debug, Clone, Copy)]
enum Every {
    /// Measured from start to start. `next` is when the next run is due without its jitter.
    Rate { period: u64, missed: MissedRuns, next: u64 },
    /// Measured from the end of a run.
    Delay(u64),
}

impl Repeat {
    /// Returns a repetition with this period, and the deadline of the first run, which is due at
    /// `first`.
    ///
    /// # Errors
    /// If the period is zero, or the jitter is longer than the period.
    pub(in crate::event_loop) fn at_rate(
        period: Duration,
        first: u64,
        options: Periodic,
        random: &Random,
    ) -> Result<(Self, u64)> {
        let jitter = Self::check("period", period, options)?;
        let every = Every::Rate { period: nanos(period), missed: options.missed, next: first };
        Ok(Repeat { every, jitter }.start(first, random))
    }

    /// Returns a repetition that waits for `delay` after the end of each run, and the deadline of
    /// the first run, which is due at `first`.
    ///
    /// # Errors
    /// If the delay is zero, or the jitter is longer than the delay.
    pub(in crate::event_loop) fn with_delay(
        delay: Duration,
        first: u64,
        options: Periodic,
        random: &Random,
    ) -> Result<(Self, u64)> {
        let jitter = Self::check("delay", delay, options)?;
        Ok(Repeat { every: Every::Delay(nanos(delay)), jitter }.start(first, random))
    }

    fn check(what: &'static str, every: Duration, options: Periodic) -> Result<u64> {
        if every.is_zero() {
            return Err(Error::setting(what, "0", "more than zero"));
        }
        if options.jitter > every {
            let range = if what == "period" { "at most the period" } else { "at most the delay" };
            return Err(Error::setting("jitter", format!("{:?}", options.jitter), range));
        }
        Ok(nanos(options.jitter))
    }

    fn start(self, first: u64, random: &Random) -> (Self, u64) {
        (self, self.late(first, random))
    }

    /// Returns the next deadline, after a run that has just ended.
    pub(in crate::event_loop) fn next(&mut self, now: u64, random: &Random) -> u64 {
        let due = match &mut self.every {
            Every::Delay(delay) => now.saturating_add(*delay),
            Every::Rate { period, missed, next } => {
                *next = next.saturating_add(*period);
                if *next <= now && *missed == MissedRuns::Skip {
                    let missed = (now - *next) / *period + 1;
                    *next = next.saturating_add(missed.saturating_mul(*period));
                }
                *next
            }
        };
        self.late(due, random)
    }

    fn late(&self, due: u64, random: &Random) -> u64 {
        due.saturating_add(random.below(self.jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rate(period: u64, options: impl Into<Periodic>) -> Repeat {
        Repeat::at_rate(Duration::from_nanos(period), 0, options.into(), &Random::new(1)).unwrap().0
    }

    #[test]
    fn e_07_missed_runs_are_skipped_and_the_phase_is_kept() {
        let random = Random::new(1);
        let mut repeat = rate(100, MissedRuns::Skip);
        assert_eq!([10, 199, 401, 500].map(|now| repeat.next(now, &random)), [100, 200, 500, 600]);
        let mut repeat = rate(100, MissedRuns::CatchUp);
        assert_eq!([401, 401, 401, 401, 401].map(|now| repeat.next(now, &random)), [100, 200, 300, 400, 500]);
    }

    #[test]
    fn stall_one_hour_single_fire() {
        let random = Random::new(1);
        let mut repeat = rate(1000 * MS, MissedRuns::Skip);
        let stalled = 3_600_000 * MS + 1;
        assert_eq!(
            repeat.next(stalled, &random),
            3_601_000 * MS,
            "one run now, and the next one in the old phase"
        );
    }

    #[test]
    fn e_03_deadlines_saturate_at_the_end_of_time() {
        let random = Random::new(1);
        let mut repeat = rate(u64::MAX / 2, MissedRuns::Skip);
        for now in [0, u64::MAX / 2, u64::MAX - 1, u64::MAX, u64::MAX] {
            assert!(repeat.next(now, &random) >= now);
        }
        let (mut repeat, first) =
            Repeat::with_delay(Duration::MAX, u64::MAX, Periodic::new(), &random).unwrap();
        assert_eq!((first, repeat.next(u64::MAX, &random)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn jitter_delays_each_run_independently_and_keeps_the_phase() {
        let random = Random::new(1);
        let options = Periodic::new().jitter(Duration::from_nanos(100));
        let (mut repeat, first) =
            Repeat::at_rate(Duration::from_nanos(1000), 5000, options, &random).unwrap();
        let mut late = vec![first - 5000];
        let mut now = first;
        for n in 1..1000 {
            now = repeat.next(now, &random);
            let due = 5000 + n * 1000;
            assert!(now >= due, "never early");
            late.push(now - due);
        }
        assert!(late.iter().all(|late| *late < 100));
        let mean = late.iter().sum::<u64>() / 1000;
        assert!((40..60).contains(&mean), "not uniform: the mean is {mean}");
    }

    #[test]
    fn e_02_a_period_of_zero_and_a_longer_jitter_are_refused() {
        let random = Random::new(1);
        let long = Periodic::new().jitter(Duration::from_secs(2));
        for (every, options, setting) in [
            (Duration::ZERO, Periodic::new(), ["period", "delay"]),
            (Duration::from_secs(1), long, ["jitter"; 2]),
        ] {
            let refused = [
                Repeat::at_rate(every, 0, options, &random).unwrap_err(),
                Repeat::with_delay(every, 0, options, &random).unwrap_err(),
            ];
            for (refused, setting) in refused.iter().zip(setting) {
                assert!(matches!(refused, Error::Setting(e) if e.setting() == setting), "{refused}");
            }
        }
        assert!(Repeat::at_rate(Duration::from_secs(2), 0, long, &random).is_ok());
    }
}
