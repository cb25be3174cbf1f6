//! The instants at which an expression runs.

use super::expression::Cron;

/// 1 January of the year 1. Runs start there.
const EARLIEST_SECOND: i64 = -62_135_596_800;

/// How far to look back for wall-clock times that were shown before. No zone has ever turned its
/// clocks by more than 24 hours.
const LOOK_BACK: i64 = 2 * 24 * 3600;

impl Cron {
    /// Returns the first run after `millis`, both in UTC milliseconds since 1970. Runs are on whole
    /// seconds, and strictly after `millis`.
    ///
    /// `None` if the next run would be after the year 9999. The search visits each month and each
    /// transition of the zone until the run. These are less than 40 years: the longest wait is that
    /// for 29 February on a certain day of the week.
    pub(crate) fn next_after(&self, millis: i64) -> Option<i64> {
        // The last second that is over, or the second that `millis` is in.
        let past = millis.div_euclid(1000).max(EARLIEST_SECOND);
        let run = if self.schedule.is_hourly() { self.next_hourly(past) } else { self.next_fixed(past) };
        run.map(|second| second * 1000)
    }

    /// Finds the next run of an expression with runs in each hour: the clock is matched as it is
    /// shown. Times that it shows twice run twice, and times that it skips do not run.
    fn next_hourly(&self, past: i64) -> Option<i64> {
        let (mut offset, transitions) = self.rules.from(past)?;
        // No time from `searched` up to `wall` matches.
        let mut searched = past + 1 + offset;
        let mut wall = self.schedule.next(searched)?;
        for transition in transitions {
            #[cfg(test)]
            super::tests::work::add();
            if wall - offset < transition.at {
                break;
            }
            offset = transition.offset;
            let shown = transition.at + offset;
            if !(searched..=wall).contains(&shown) {
                searched = shown;
                wall = self.schedule.next(searched)?;
            }
        }
        Some(wall - offset)
    }

    /// Finds the next run of an expression with runs in certain hours: each time of the wall clock
    /// runs when it has been reached or passed for the first time.
    fn next_fixed(&self, past: i64) -> Option<i64> {
        let (mut offset, transitions) = self.rules.from(past - LOOK_BACK)?;
        let mut transitions = transitions.peekable();
        // The first time of the wall clock that has not been reached yet.
        let mut unseen = i64::MIN;
        while let Some(transition) = transitions.next_if(|transition| transition.at <= past) {
            unseen = unseen.max(transition.at + offset);
            offset = transition.offset;
        }
        let wall = self.schedule.next(unseen.max(past + 1 + offset))?;
        for transition in transitions {
            #[cfg(test)]
            super::tests::work::add();
            if wall - offset < transition.at {
                break;
            }
            if wall < transition.at + transition.offset {
                // The clock jumps over the time.
                return Some(transition.at);
            }
            offset = transition.offset;
        }
        Some(wall - offset)
    }

    /// Returns the runs after `millis` in ascending order.
    pub(crate) fn runs_after(&self, millis: i64) -> impl Iterator<Item = i64> {
        std::iter::successors(self.next_after(millis), |&run| self.next_after(run))
    }

    /// Returns the number of runs after `after` and up to `until`, or `limit` if there are more.
    pub(crate) fn count_between(&self, after: i64, until: i64, limit: usize) -> usize {
        self.runs_after(after).take(limit).take_while(|&run| run <= until).count()
    }
}
