//! The store without loop and threads: what durable timers are compared with.

use crate::{TEXT, TOPIC};
use netwheel::{
    Error, Result,
    durable::{
        SqliteStore, TimerStore,
        store::{Change, NewTimer},
    },
};
use std::{
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Three days, like a reminder. Such timers are far outside of the window in memory.
const FAR: Duration = Duration::from_secs(3 * 24 * 3600);

/// Due times are spread over a day, so that the index on them is not written in its order.
const SPREAD_MILLIS: u64 = 24 * 3600 * 1000;

pub(crate) fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns how long to wait for a timer of `starts` and `lone`.
pub(crate) fn far() -> Duration {
    FAR + Duration::from_millis(fastrand::u64(..SPREAD_MILLIS))
}

/// Returns the start of a timer.
pub(crate) fn start(due: i64) -> Change {
    let payload = format!("\"{TEXT}\"").into_bytes();
    Change::Start(NewTimer::new(0, due, payload))
}

pub(crate) struct Bare(Box<dyn TimerStore>);

impl Bare {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::on(SqliteStore::open(path)?)
    }

    pub(crate) fn on(mut store: impl TimerStore + 'static) -> Result<Self> {
        store.attach(&[TOPIC.to_owned()])?;
        Ok(Bare(Box::new(store)))
    }

    /// Commits timers with these due times in one transaction.
    pub(crate) fn commit(&mut self, due: impl Iterator<Item = i64>) -> Result {
        let mut changes: Vec<Change> = due.map(start).collect();
        let outcomes = self.0.commit(&mut changes, now_millis())?;
        self.0.maintain()?;
        if outcomes.len() == changes.len() {
            Ok(())
        } else {
            Err(Error::other("the store did not answer every change"))
        }
    }

    /// Commits `rows` far timers in each transaction for some time. Returns the number of timers
    /// and the seconds that they took.
    pub(crate) fn run(&mut self, rows: usize, time: Duration) -> Result<(f64, f64)> {
        let begun = Instant::now();
        let mut timers = 0;
        self.0.set_busy(true);
        while begun.elapsed() < time {
            let now = now_millis();
            let far = || now.saturating_add(i64::try_from(far().as_millis()).unwrap_or(i64::MAX));
            self.commit((0..rows).map(|_| far()))?;
            timers += rows;
        }
        self.0.set_busy(false);
        Ok((timers as f64, begun.elapsed().as_secs_f64()))
    }
}
