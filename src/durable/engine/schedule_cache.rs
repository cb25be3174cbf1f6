//! `ScheduleCache`: schedules that were parsed a short while ago.

use crate::{durable::schedule::Schedule, error::Result};
use std::{collections::BTreeMap, sync::Arc};

/// The largest number of schedules.
const LIMIT: usize = 256;

/// Keeps parsed schedules, because parsing one may read the file of its time zone. When it is full,
/// it forgets all of them, so changed rules of a zone are noticed only after a restart.
#[derive(Debug, Default)]
pub(super) struct ScheduleCache {
    schedules: BTreeMap<String, Arc<Schedule>>,
}

impl ScheduleCache {
    /// Returns the schedule of a text.
    pub(super) fn get(&mut self, text: &str) -> Result<Arc<Schedule>> {
        if let Some(schedule) = self.schedules.get(text) {
            return Ok(schedule.clone());
        }
        let schedule = Arc::new(Schedule::parse(text)?);
        if self.schedules.len() >= LIMIT {
            self.schedules.clear();
        }
        self.schedules.insert(text.to_owned(), schedule.clone());
        Ok(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_schedules_than_the_limit_are_served() {
        let mut cache = ScheduleCache::default();
        for _ in 0..2 {
            for period in 1..=LIMIT as i64 + 10 {
                let schedule = cache.get(&format!("every {period}")).unwrap();
                assert_eq!(*schedule, Schedule::Every(period));
                assert!(cache.schedules.len() <= LIMIT);
            }
        }
        assert!(cache.get("never").is_err());
    }
}
