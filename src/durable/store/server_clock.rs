//! `ServerClock`: a node's estimate of the clock of the database.

use super::lease::ClockReading;
use std::time::{Duration, Instant};

/// How far two clocks may drift apart, as a part of the time.
const DRIFT: u32 = 5000;

/// The last reading of the clock, continued with the monotonic clock of this process.
#[derive(Debug, Clone, Copy)]
pub(in crate::durable::store) struct ServerClock {
    /// A lower bound of the server's time at `at`, in microseconds since 1970.
    micros: i64,
    /// How far the bound may be below the server's time.
    error: Duration,
    at: Instant,
}

impl ServerClock {
    /// Takes a reading of the server's clock that was made between two instants. If an earlier
    /// reading agrees with it and has a better bound, for example because this request was slow,
    /// the bound is kept.
    pub(in crate::durable::store) fn read(
        last: Option<Self>,
        micros: i64,
        asked: Instant,
        at: Instant,
    ) -> Self {
        let within = at.saturating_duration_since(asked);
        let latest = micros.saturating_add(as_micros(within));
        let continued = last.map(|last| {
            let age = at.saturating_duration_since(last.at);
            last.micros.saturating_add(as_micros(age - age / DRIFT))
        });
        let bound = continued.filter(|bound| (micros..=latest).contains(bound)).unwrap_or(micros);
        let error = Duration::from_micros(latest.saturating_sub(bound).unsigned_abs());
        ServerClock { micros: bound, error, at }
    }

    /// Returns the reading as of an instant after it.
    pub(in crate::durable::store) fn reading(&self, now: Instant) -> ClockReading {
        let age = now.saturating_duration_since(self.at);
        let drift = age / DRIFT;
        let micros = self.micros.saturating_add(as_micros(age - drift));
        ClockReading { micros, error: self.error + 2 * drift }
    }
}

fn as_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an instant to begin with")]
    fn a_slow_answer_does_not_spoil_a_good_bound() {
        let start = Instant::now();
        let first = ServerClock::read(None, 1_000_000, start, start + 2 * MS);
        assert_eq!((first.micros, first.error), (1_000_000, 2 * MS));
        // The server's clock was read at some time within 400 ms.
        let slow = ServerClock::read(Some(first), 1_102_000, start + 100 * MS, start + 502 * MS);
        assert_eq!(slow.micros, 1_499_900, "500 ms later, less the drift");
        assert_eq!(slow.error, Duration::from_micros(4100));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an instant to begin with")]
    fn a_clock_that_was_set_is_followed() {
        let start = Instant::now();
        let first = ServerClock::read(None, 1_000_000_000, start, start + MS);
        for set in [5_000_000, 9_000_000_000] {
            let next = ServerClock::read(Some(first), set, start + 9 * MS, start + 10 * MS);
            assert_eq!((next.micros, next.error), (set, MS));
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an instant to begin with")]
    fn a_reading_goes_on_with_the_time_and_loses_precision() {
        let start = Instant::now();
        let clock = ServerClock::read(None, 0, start, start + MS);
        let reading = clock.reading(start + MS + Duration::from_secs(5));
        assert_eq!((reading.micros, reading.error), (4_999_000, 3 * MS));
    }
}
