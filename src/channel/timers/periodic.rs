//! The next run of a periodic task.
//!
//! Invariants: a deadline is never earlier than the period says, and later by less than the jitter.
//! The jitter of one run does not move the next. Random numbers are an argument. Times are in
//! nanoseconds.

use crate::{
    clock::nanos,
    error::{Error, Result},
    settings::check_range,
    sync::Random,
};
use std::time::Duration;

/// The treatment of runs of a fixed-rate task whose time passed while the loop was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MissedRuns {
    /// Skips missed runs. The next run is at the next multiple of the period. This is the default.
    #[default]
    Skip,
    /// Makes up for missed runs, one per turn of the loop, like Netty.
    CatchUp,
}

/// When a periodic task runs. A `Duration` converts to the period of a [fixed
/// rate](Periodic::fixed_rate).
///
/// | setting | default |
/// |---|---|
/// | `initial_delay` | the period or delay |
/// | `missed_runs` | [`MissedRuns::Skip`] |
/// | `jitter` | none |
///
/// ```
/// use netwheel::{EventLoopGroup, time::Periodic};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// // Without jitter, many tasks that start together would all run in the same millisecond.
/// let minute = Periodic::fixed_rate(Duration::from_secs(60)).jitter(Duration::from_secs(3));
/// let task = group.next().schedule_periodic(minute, || Ok(()))?;
/// assert!(task.cancel());
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Periodic {
    rhythm: Rhythm,
    initial_delay: Option<Duration>,
    missed: MissedRuns,
    jitter: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rhythm {
    Rate(Duration),
    Delay(Duration),
}

impl Periodic {
    /// Repeats every `period`, measured from start to start.
    #[doc(alias = "scheduleAtFixedRate")]
    pub fn fixed_rate(period: Duration) -> Self {
        Self::new(Rhythm::Rate(period))
    }

    /// Repeats `delay` after the end of the previous run.
    #[doc(alias = "scheduleWithFixedDelay")]
    pub fn fixed_delay(delay: Duration) -> Self {
        Self::new(Rhythm::Delay(delay))
    }

    fn new(rhythm: Rhythm) -> Self {
        Periodic { rhythm, initial_delay: None, missed: MissedRuns::Skip, jitter: Duration::ZERO }
    }

    /// Sets the time until the first run. The default is the period or delay.
    pub fn initial_delay(mut self, initial_delay: Duration) -> Self {
        self.initial_delay = Some(initial_delay);
        self
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

impl Periodic {
    /// # Errors
    /// [`Error::Setting`] if the period or delay is zero, or shorter than the jitter.
    pub(crate) fn check(&self) -> Result {
        let (setting, at_most) = match self.rhythm {
            Rhythm::Rate(_) => ("period", "at most the period"),
            Rhythm::Delay(_) => ("delay", "at most the delay"),
        };
        let (every, jitter) = (self.every(), self.jitter);
        if every.is_zero() {
            return Err(Error::setting(setting, "0", "more than zero"));
        }
        check_range("jitter", jitter, ..=every, at_most)
    }

    fn every(&self) -> Duration {
        match self.rhythm {
            Rhythm::Rate(every) | Rhythm::Delay(every) => every,
        }
    }

    /// Returns the deadline of the first run without its jitter, counted from `now`.
    pub(crate) fn first(&self, now: u64) -> u64 {
        now.saturating_add(nanos(self.initial_delay.unwrap_or(self.every())))
    }
}

impl From<Duration> for Periodic {
    fn from(period: Duration) -> Self {
        Periodic::fixed_rate(period)
    }
}

/// The repetition of one task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repeat {
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
    /// Returns the repetition, and the deadline of the first run, both counted from `now`.
    ///
    /// # Errors
    /// [`Error::Setting`] if the period or delay is zero, or shorter than the jitter.
    pub(crate) fn new(periodic: Periodic, now: u64, random: &Random) -> Result<(Self, u64)> {
        periodic.check()?;
        let Periodic { missed, jitter, .. } = periodic;
        let first = periodic.first(now);
        let every = match periodic.rhythm {
            Rhythm::Rate(period) => Every::Rate { period: nanos(period), missed, next: first },
            Rhythm::Delay(delay) => Every::Delay(nanos(delay)),
        };
        let repeat = Repeat { every, jitter: nanos(jitter) };
        Ok((repeat, repeat.late(first, random)))
    }

    /// Returns the next deadline, after a run that has just ended.
    pub(crate) fn next(&mut self, now: u64, random: &Random) -> u64 {
        let due = match &mut self.every {
            Every::Delay(delay) => now.saturating_add(*delay),
            Every::Rate { period, missed, next } => {
                *next = next.saturating_add(*period);
                let due = next.saturating_add(random.below(self.jitter));
                if due > now || *missed == MissedRuns::CatchUp {
                    return due;
                }
                let missed = (now - *next) / *period + 1;
                *next = next.saturating_add(missed.saturating_mul(*period));
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

    /// Repeats every `period` nanoseconds, the first time at 0.
    fn rate(period: u64, missed: MissedRuns) -> Repeat {
        let periodic = Periodic::fixed_rate(Duration::from_nanos(period)).missed_runs(missed);
        Repeat::new(periodic.initial_delay(Duration::ZERO), 0, &Random::new(1)).unwrap().0
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
            Repeat::new(Periodic::fixed_delay(Duration::MAX), u64::MAX, &random).unwrap();
        assert_eq!((first, repeat.next(u64::MAX, &random)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn jitter_delays_each_run_independently_and_keeps_the_phase() {
        let random = Random::new(1);
        let periodic = Periodic::fixed_rate(Duration::from_nanos(1000)).jitter(Duration::from_nanos(100));
        let (mut repeat, first) = Repeat::new(periodic, 4000, &random).unwrap();
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

    /// A run is missed when its time has passed with its jitter, not before.
    #[test]
    fn a_run_that_its_jitter_delays_does_not_cost_the_next_one() {
        let random = Random::new(1);
        let thousand = Duration::from_nanos(1000);
        let (mut repeat, first) =
            Repeat::new(Periodic::fixed_rate(thousand).jitter(thousand), 0, &random).unwrap();
        let mut starts = vec![first];
        while starts.len() < 1000 {
            let ended = starts.last().unwrap() + 100;
            starts.push(repeat.next(ended, &random));
        }
        let (last, runs) = (starts.last().unwrap() / 1000, starts.len() as u64);
        assert!((runs..runs + 20).contains(&last), "{} runs were skipped", last - runs);
        let next = |pair: &[u64]| pair[1] > pair[0] + 100 && pair[1] / 1000 > pair[0] / 1000;
        assert!(starts.windows(2).all(next), "{starts:?}");
    }

    #[test]
    fn e_02_a_period_of_zero_and_a_longer_jitter_are_refused() {
        let random = Random::new(1);
        let (second, two) = (Duration::from_secs(1), Duration::from_secs(2));
        for (periodic, setting) in [
            (Periodic::fixed_rate(Duration::ZERO), "period"),
            (Periodic::fixed_delay(Duration::ZERO), "delay"),
            (Periodic::fixed_rate(second).jitter(two), "jitter"),
            (Periodic::fixed_delay(second).jitter(two), "jitter"),
        ] {
            let refused = Repeat::new(periodic, 0, &random).unwrap_err();
            assert!(matches!(&refused, Error::Setting(e) if e.setting() == setting), "{refused}");
        }
        assert!(Repeat::new(Periodic::fixed_rate(two).jitter(two), 0, &random).is_ok());
    }
}
