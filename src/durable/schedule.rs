//! `Schedule`: when a timer runs again.

use super::{cron::Cron, unix_millis::LATEST};
use crate::{Error, Result};
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
    /// none before the year 10000.
    pub(super) fn next_after(&self, run: i64, millis: i64) -> Option<i64> {
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

    /// Returns the runs after `run` and up to `until`: how many they are, counted up to `limit`.
    pub(super) fn missed(&self, run: i64, until: i64, limit: u64) -> u64 {
        match self {
            Schedule::Every(period) => (until.saturating_sub(run).max(0) / period).unsigned_abs().min(limit),
            Schedule::Cron(_) => {
                let mut last = run;
                let mut count = 0;
                while count < limit {
                    match self.next_after(run, last) {
                        Some(next) if next <= until => last = next,
                        _ => break,
                    }
                    count += 1;
                }
                count
            }
        }
    }

    /// Returns the first of the last `count` runs in `run..=until`. `run` itself counts as one.
    pub(super) fn last_runs(&self, run: i64, until: i64, count: u32) -> i64 {
        let count = u64::from(count);
        if let Schedule::Every(period) = self {
            let all = self.missed(run, until, u64::MAX) + 1;
            let dropped = i64::try_from(all.saturating_sub(count)).unwrap_or(i64::MAX);
            return run.saturating_add(dropped.saturating_mul(*period));
        }
        // Look back over a time that doubles until enough runs are in it, so that the work depends
        // on `count` and not on how long nothing fired.
        let mut back = 1000i64;
        let from = loop {
            let from = until.saturating_sub(back).max(run);
            if from == run || self.missed(from, until, count) >= count {
                break from;
            }
            back = back.saturating_mul(2);
        };
        let first = if from == run { run } else { self.next_after(run, from).unwrap_or(run) };
        let mut last = VecDeque::new();
        let mut next = Some(first);
        while let Some(at) = next.filter(|at| *at <= until) {
            last.push_back(at);
            if last.len() as u64 > count {
                last.pop_front();
            }
            next = self.next_after(run, at);
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
