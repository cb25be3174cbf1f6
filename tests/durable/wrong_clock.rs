//! `WrongClock`: a machine whose wall clock is wrong, and can be set.

use netwheel::time::Clock;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// Shows the time of the system and a number of milliseconds, which may be negative.
#[derive(Debug, Clone)]
pub(crate) struct WrongClock {
    ahead_by: Arc<AtomicI64>,
    /// The maximum of `ahead_by` until now.
    largest: Arc<AtomicI64>,
}

impl WrongClock {
    pub(crate) fn ahead_by(millis: i64) -> Self {
        WrongClock { ahead_by: Arc::new(millis.into()), largest: Arc::new(millis.into()) }
    }

    pub(crate) fn set_ahead_by(&self, millis: i64) {
        self.largest.fetch_max(millis, Ordering::Relaxed);
        self.ahead_by.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn is_ahead_by(&self) -> i64 {
        self.ahead_by.load(Ordering::Relaxed)
    }

    /// Returns the latest time that the clock can have shown.
    pub(crate) fn latest_wall_time(&self) -> SystemTime {
        system_time_and(self.largest.load(Ordering::Relaxed))
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_time(&self) -> SystemTime {
        system_time_and(self.is_ahead_by())
    }
}

fn system_time_and(millis: i64) -> SystemTime {
    let difference = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { SystemTime::now() - difference } else { SystemTime::now() + difference }
}
