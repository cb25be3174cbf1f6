//! `Schedule`: when a timer runs again.

use super::{cron::Cron, unix_millis::LATEST};
use crate::error::{Error, Result};
use std::{collections::VecDeque, fmt};

/// When a timer runs again after its first run. Stored as text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Schedule {
    /// At a fixed rate: `every 60000`, in milliseconds.
    Every(i64),
    /// At the times of an expression: `cron Europe/Berlin 0 9 * * *`.
    Cron(Cron),
}

impl Schedule {
    /// Parses the text of a store.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let unknown = || Error::other(format!("the schedule {text:?} is not understood"));
        match text.split_once(' ') {
            Some(("every", period)) => {
                let period: i64 = period.parse().map_err(|_| unknown())?;
                if (1..=LATEST).contains(&period) { Ok(Schedule::Every(period)) } else { Err(unknown()) }
            }
            Some(("cron", rest)) => {
                let (zone, expression) = rest.split_once(' ').ok_or_else(unknown)?;
                Ok(Schedule::Cron(Cron::new(expression, zone).map_err(Error::other)?))
            }
            _ => Err(unknown()),
        }
    }

    /// Returns the first run after `millis` of a timer with a run at `run`, or `None` if there is
    /// none before the year 10000. Times before 1970, from a damaged row, count as 1970.
    pub(super) fn next_after(&self, run: i64, millis: i64) -> Option<i64> {
        let run = run.max(0);
        match self {
            Schedule::Every(period) => {
                // A timer that was moved to a later time has no runs before that time.
                let periods = millis.saturating_sub(run).max(0) / period + 1;
                let next = run.checked_add(periods.checked_mul(*period)?)?;
                (next <= LATEST).then_some(next)
            }
            Schedule::Cron(cron) => cron.next_after(millis.max(run)),
        }
    }

    /// Returns the first run after `millis` of a timer whose next run is stored as `run`, also if
    /// that is earlier than `run`.
    pub(super) fn first_after(&self, run: i64, millis: i64) -> Option<i64> {
        match self {
            Schedule::Every(period) if run > millis => Some(run - (run - millis - 1) / period * period),
            Schedule::Every(_) => self.next_after(run, millis),
            Schedule::Cron(cron) => cron.next_after(millis),
        }
    }

    /// Returns the runs after `run` and up to `until`: how many they are, counted up to `limit`.
    pub(super) fn missed(&self, run: i64, until: i64, limit: u64) -> u64 {
        let run = run.max(0);
        match self {
            Schedule::Every(period) => (until.saturating_sub(run).max(0) / period).unsigned_abs().min(limit),
            Schedule::Cron(cron) => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                cron.count_between(run, until, limit) as u64
            }
        }
    }

    /// Returns the first of the last `count` runs in `run..=until`. `run` itself counts as one.
    pub(super) fn last_runs(&self, run: i64, until: i64, count: u32) -> i64 {
        let run = run.max(0);
        let cron = match self {
            Schedule::Every(period) => {
                let all = self.missed(run, until, u64::MAX).saturating_add(1);
                let dropped = i64::try_from(all.saturating_sub(u64::from(count))).unwrap_or(i64::MAX);
                return run.saturating_add(dropped.saturating_mul(*period));
            }
            Schedule::Cron(cron) => cron,
        };
        // Look back over a time that doubles until enough runs are in it, so that the work depends
        // on `count` and not on how long nothing fired.
        let mut back = 1000i64;
        let from = loop {
            let from = until.saturating_sub(back).max(run);
            if from == run || self.missed(from, until, u64::from(count)) >= u64::from(count) {
                break from;
            }
            back = back.saturating_mul(2);
        };
        let mut last = VecDeque::new();
        let first = (from == run).then_some(run);
        for at in first.into_iter().chain(cron.runs_after(from)).take_while(|at| *at <= until) {
            if last.len() == count as usize {
                last.pop_front();
            }
            last.push_back(at);
        }
        last.front().copied().unwrap_or(run)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Every(period) => write!(f, "every {period}"),
            Schedule::Cron(cron) => write!(f, "cron {} {}", cron.zone(), cron.expression()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-03-01 00:00:00 UTC, which is a Friday.
    const START: i64 = 1_709_251_200_000;

    fn all_runs(schedule: &Schedule, run: i64, until: i64) -> Vec<i64> {
        let after = |last: &i64| schedule.next_after(run, *last);
        std::iter::successors(Some(run), after).take_while(|at| *at <= until).collect()
    }

    #[test]
    fn text_and_schedule_are_the_same() {
        for text in ["every 1", "every 60000", "cron Asia/Shanghai 0 9 * * MON-FRI", "cron UTC @hourly"] {
            assert_eq!(Schedule::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "every", "every 0", "every -1", "every x", "cron UTC", "cron Nowhere * * * * *", "daily"]
        {
            assert!(Schedule::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn intervals_keep_their_rate() {
        let schedule = Schedule::Every(100);
        assert_eq!(schedule.next_after(1000, 1000), Some(1100));
        assert_eq!(schedule.next_after(1000, 1099), Some(1100));
        assert_eq!(schedule.next_after(1000, 1100), Some(1200));
        assert_eq!(schedule.next_after(1000, 0), Some(1100), "the clock was set back");
        assert_eq!(schedule.next_after(LATEST, LATEST), None);
        assert_eq!(Schedule::Every(LATEST).next_after(LATEST, 0), None);
    }

    #[test]
    fn times_of_damaged_rows_neither_panic_nor_take_long() {
        for text in ["every 1", "every 60000", "cron UTC 0 0 29 2 *"] {
            let schedule = Schedule::parse(text).unwrap();
            assert!(schedule.next_after(i64::MIN, START).unwrap() > START, "{text}");
            assert!(schedule.missed(i64::MIN, START, 5) == 5, "{text}");
            let first = schedule.last_runs(i64::MIN, START, 1000);
            assert!((0..=START).contains(&first), "{text}");
            assert_eq!(schedule.next_after(i64::MAX, START), None, "{text}");
            assert_eq!(schedule.missed(i64::MAX, START, 5), 0, "{text}");
            assert_eq!(schedule.last_runs(i64::MAX, START, 5), i64::MAX, "{text}");
        }
    }

    #[test]
    fn the_first_run_after_a_time_may_be_earlier_than_the_stored_one() {
        let every = Schedule::Every(100);
        assert_eq!(every.first_after(1_000_030, 500), Some(530), "in step");
        assert_eq!(every.first_after(1_000_030, 530), Some(630));
        assert_eq!(every.first_after(530, 500), Some(530));
        assert_eq!(every.first_after(530, 530), Some(630));
        assert_eq!(every.first_after(i64::MAX, 0), Some(i64::MAX % 100));
        let noon = Schedule::parse("cron UTC 0 12 * * *").unwrap();
        let years = START + 10 * 365 * 86_400_000;
        assert_eq!(noon.first_after(years, START), Some(START + 12 * 3_600_000));
    }

    #[test]
    fn missed_and_last_runs_agree_with_a_list_of_all_runs() {
        for text in ["every 60000", "every 7000", "cron UTC */5 * * * *", "cron Europe/Berlin 30 2 * * *"] {
            let schedule = Schedule::parse(text).unwrap();
            let run = schedule.next_after(START, START).unwrap();
            for hours in [0, 1, 2, 30, 31 * 24] {
                let until = run + hours * 3_600_000 + 1234;
                let all = all_runs(&schedule, run, until);
                let missed = schedule.missed(run, until, 1_000_000);
                assert_eq!(missed, all.len() as u64 - 1, "{text} {hours}");
                for count in [1, 2, 10, 1000] {
                    let expected = all[all.len().saturating_sub(count)];
                    let first = schedule.last_runs(run, until, u32::try_from(count).unwrap());
                    assert_eq!(first, expected, "{text} {hours} {count}");
                }
            }
            assert_eq!(schedule.missed(run, run + 1000 * 86_400_000, 3), 3);
        }
    }
}
