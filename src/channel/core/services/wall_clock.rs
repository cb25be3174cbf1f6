//! The time of day, cached for a second.

use crate::clock::TimeSource;
use std::time::SystemTime;

const SECOND: u64 = 1_000_000_000;

/// The time of day of a loop. Reads the clock when the last reading is a second old, so a server
/// may put the time into each response.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// The last reading, and the loop's time until which it is used.
    last: Option<(SystemTime, u64)>,
}

impl WallClock {
    /// Returns a time that is at most one second old. `now` is the loop's time.
    #[inline]
    pub(super) fn get(&mut self, source: &TimeSource, now: u64) -> SystemTime {
        match self.last {
            Some((time, until)) if now < until => time,
            _ => self.read(source, now),
        }
    }

    #[cold]
    fn read(&mut self, source: &TimeSource, now: u64) -> SystemTime {
        let time = source.wall_time();
        // Whole seconds expire together with the second that they show.
        let within = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        self.last = Some((time, now.saturating_add(SECOND - u64::from(within))));
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::{sync::Arc, time::Duration};

    #[test]
    fn the_second_is_right_and_the_clock_is_read_once_for_it() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_millis(300));
        let source = TimeSource::new(Arc::new(clock.clone()));
        let mut wall = WallClock::default();
        let start = wall.get(&source, source.now());
        clock.advance(Duration::from_millis(699));
        assert_eq!(wall.get(&source, source.now()), start, "the same second");
        clock.advance(Duration::from_millis(1));
        assert_eq!(wall.get(&source, source.now()), start + Duration::from_millis(700));
    }
}
