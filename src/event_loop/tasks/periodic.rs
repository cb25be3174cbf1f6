//! The next run of a periodic task.
//!
//! Invariants: a deadline is never earlier than the period says, and later by less than the jitter.
//! The jitter of one run does not move the next. Random numbers are an argument. Times are in
//! nanoseconds.

use crate::{Error, Result, clock::nanos, sync::Random};
use std::time::Duration;

/// What a fixed-rate task does about runs whose time passed while the loop was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedRuns {
    /// They are left out; the next run is at the next multiple of the period (the default).
    #[default]
    Skip,
    /// They are made up for one after the other, one in each turn of the loop (Netty makes up for them too).
    CatchUp,
}

/// How a periodic task repeats, beyond its period; a [`MissedRuns`] alone is one too.
///
/// ```
/// use netwheel::{EventLoopGroup, Periodic};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// // Many of these, started at once, do not all run in the same millisecond.
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
    /// Missed runs are skipped; no jitter.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is done about runs whose time has passed; of no account with a fixed delay, which misses none.
    pub fn missed_runs(mut self, missed: MissedRuns) -> Self {
        self.missed = missed;
        self
    }

    /// Each run is late by a time of its own choice, evenly from zero to less than `jitter`; the rhythm is kept. Zero
    /// (the default) is none, and it must not be longer than the period or delay.
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

/// The rhythm of one task.
#[derive(Debug, Clone, Copy)]
pub(in crate::event_loop) struct Repeat {
    every: Every,
    jitter: u64,
}

#[derive(Debug, Clone, Copy)]
enum Every {
    /// From start to start; and when the run that comes next is due without its jitter.
    Rate { period: u64, missed: MissedRuns, next: u64 },
    /// From the end of a run.
    Delay(u64),
}

impl Repeat {
    /// Every `period`, and the deadline of the first run, which is due at `first`.
    ///
    /// # Errors
    /// If the period is zero, or the jitter longer.
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

    /// Every time `delay` after the end of a run, and the deadline of the first one, which is due at `first`.
    ///
    /// # Errors
    /// If the delay is zero, or the jitter longer.
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

    /// The next deadline, after a run that has just ended.
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
            "one run, now, and then the next in the old phase"
        );
    }

    #[test]
    fn e_03_the_end_of_time_is_not_passed() {
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
    fn jitter_delays_each_run_by_itself_and_keeps_the_phase() {
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
        assert!((40..60).contains(&mean), "evenly: {mean}");
    }

    #[test]
    fn e_02_a_rhythm_of_nothing_and_a_jitter_beyond_it_are_refused() {
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
