//! `TimerClock`: the clock by which timers are due.

use super::{
    store::ClockReading,
    unix_millis::{present_millis, system_time},
};
use crate::{
    clock::{ClockWatch, TimeSource},
    machine::Mutex,
};
use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// No reading of the store's clock.
const UNSET: i64 = i64::MIN;

/// The wall clock of this machine, or that of the store if several nodes share it.
///
/// Between two readings, the store's clock is continued with the monotonic clock of the loop. So a
/// wall clock that is wrong, or jumps, has no effect. A reading is a lower bound, so timers do not
/// fire early by the store's clock.
#[derive(Debug)]
pub(super) struct TimerClock {
    time: TimeSource,
    /// The store's time at the origin of the loop's time, in microseconds since 1970.
    origin: AtomicI64,
    /// What starts and the store's thread believe of the clock. The engine has a watch of its own,
    /// and its looks at the clock are passed to this one, so that both notice a jump at once.
    watch: Mutex<ClockWatch>,
}

impl TimerClock {
    pub(super) fn new(time: TimeSource) -> Self {
        TimerClock { time, origin: AtomicI64::new(UNSET), watch: Mutex::default() }
    }

    /// Takes a reading of the store's clock, which was made just now. Returns by how much this
    /// machine's clock is certainly off, in milliseconds. Positive if it is ahead.
    pub(super) fn set(&self, reading: ClockReading) -> i64 {
        let monotonic = self.time.now();
        self.origin.store(reading.micros.saturating_sub(micros(monotonic)), Ordering::Release);
        let local = self.time.wall_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        let local = i64::try_from(local.as_micros()).unwrap_or(i64::MAX);
        let error = i64::try_from(reading.error.as_micros()).unwrap_or(i64::MAX);
        let latest = reading.micros.saturating_add(error);
        let off = local.saturating_sub(local.clamp(reading.micros, latest));
        off / 1000
    }

    /// Returns the loop's monotonic time in nanoseconds.
    pub(super) fn monotonic(&self) -> u64 {
        self.time.now()
    }

    /// Returns the time that the clock shows at an instant of the loop's time, which is the
    /// present.
    pub(super) fn wall_time_at(&self, monotonic: u64) -> SystemTime {
        match self.origin.load(Ordering::Acquire) {
            UNSET => self.time.wall_time(),
            origin => {
                let since = origin.saturating_add(micros(monotonic)).max(0).unsigned_abs();
                UNIX_EPOCH + Duration::from_micros(since)
            }
        }
    }

    /// Returns the present time. A doubtful jump of the clock counts after a minute, as in the
    /// engine: until then, starts get due times that follow the old time, and no key or dead letter
    /// is removed as too old.
    pub(super) fn wall_time(&self) -> SystemTime {
        let monotonic = self.time.now();
        let shown = self.wall_time_at(monotonic);
        let millis = present_millis(shown);
        let believed = self.observe(millis, monotonic);
        if believed == millis { shown } else { system_time(believed) }
    }

    /// Takes both clocks, as the engine has read them. Returns the time that counts, in
    /// milliseconds since 1970.
    pub(super) fn observe(&self, wall: i64, monotonic: u64) -> i64 {
        self.watch.lock().observe(wall, monotonic).wall
    }

    /// Returns the present time in milliseconds since 1970, rounded down.
    pub(super) fn present_millis(&self) -> i64 {
        present_millis(self.wall_time())
    }
}

fn micros(nanos: u64) -> i64 {
    i64::try_from(nanos / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{Clock, ManualClock},
        durable::unix_millis::duration_millis,
    };
    use std::sync::Arc;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_clock_of_the_store_replaces_that_of_the_machine() {
        let manual = ManualClock::new();
        let clock = TimerClock::new(TimeSource::new(Arc::new(manual.clone())));
        let local = manual.wall_time();
        assert_eq!(clock.wall_time(), local, "without a reading");
        let store = i64::try_from((local - HOUR).duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
        let off = clock.set(ClockReading { micros: store, error: Duration::from_millis(20) });
        assert_eq!(off, 3_600_000 - 20, "what is certain");
        assert_eq!(clock.wall_time(), local - HOUR);
        manual.advance(Duration::from_secs(1));
        manual.set_wall_time(local + 1000 * HOUR);
        assert_eq!(clock.wall_time(), local - HOUR + Duration::from_secs(1), "jumps have no effect");
        assert_eq!(clock.present_millis() % 1000, 0);
    }

    #[test]
    fn a_clock_that_is_years_ahead_is_believed_after_a_minute() {
        let manual = ManualClock::new();
        let clock = TimerClock::new(TimeSource::new(Arc::new(manual.clone())));
        let (begun, years) = (clock.present_millis(), 100_000 * HOUR);
        manual.set_wall_time(manual.wall_time() + years);
        assert_eq!(clock.present_millis(), begun);
        manual.advance(Duration::from_secs(59));
        assert_eq!(clock.present_millis(), begun + 59_000);
        manual.advance(Duration::from_secs(1));
        assert_eq!(clock.present_millis(), begun + 60_000 + duration_millis(years));
        manual.set_wall_time(manual.wall_time() - years);
        assert_eq!(clock.present_millis(), begun + 60_000, "a jump back counts at once");
    }

    #[test]
    fn a_difference_within_the_error_of_a_reading_is_none() {
        let manual = ManualClock::new();
        let clock = TimerClock::new(TimeSource::new(Arc::new(manual.clone())));
        let local = manual.wall_time().duration_since(UNIX_EPOCH).unwrap().as_micros();
        let micros = i64::try_from(local).unwrap() - 5000;
        assert_eq!(clock.set(ClockReading { micros, error: Duration::from_millis(10) }), 0);
        assert_eq!(clock.set(ClockReading { micros: micros + 8000, error: Duration::ZERO }), -3);
    }
}
