//! The time that the I/O of a turn may take.
//!
//! While I/O is quick the clock is read once in [`INTERVAL`] units of work, so a turn with few
//! events does not read it at all. After a long turn or a slow batch it is read between any two
//! units, so that I/O ends with the unit that exceeds the limit. A unit is a ready source, a read,
//! a message, a datagram or an accepted connection. A channel may be cut off between two messages
//! of one read. It continues in the next turn, because `UNDECODED` is set.
//!
//! Invariants: every turn handles at least one source and delivers at least one message. Owned by
//! the loop, runs on its thread.

use crate::clock::TimeSource;

/// Units of work between two readings of the clock, while they are quick.
const INTERVAL: u32 = 64;

/// Turns in which the clock is read between any two units, after a turn that took longer than its
/// I/O may.
const CAREFUL_TURNS: u32 = 64;

/// A batch of [`INTERVAL`] units is slow if it takes more than this part of the limit.
const SLOW_PART: u64 = 8;

#[derive(Debug)]
pub(crate) struct IoTime {
    /// Units that may be started before the clock is read.
    left: u32,
    /// Nanoseconds that the I/O of a turn may take.
    limit: u64,
    /// The time at which the I/O of this turn started.
    began: u64,
    /// Units that may be started before the first reading of the next turn.
    first: u32,
    /// The last reading of the clock.
    read_at: u64,
    /// Whether the limit is reached.
    over: bool,
    /// Remaining turns in which the clock is read between any two units.
    careful: u32,
    /// Whether to read the clock between any two units. On a manual clock, past units predict
    /// nothing.
    exact: bool,
    /// Readings of the clock since the last [`IoTime::take_readings`].
    readings: u64,
}

impl IoTime {
    /// Creates a time without a limit, which never reads the clock.
    pub(crate) fn unlimited() -> Self {
        IoTime {
            left: 0,
            limit: u64::MAX,
            began: 0,
            first: INTERVAL,
            read_at: 0,
            over: false,
            careful: 0,
            exact: false,
            readings: 0,
        }
    }

    /// Creates a limit of `limit` nanoseconds per turn.
    pub(crate) fn limited(limit: u64, real_time: bool) -> Self {
        let first = if real_time { INTERVAL } else { 1 };
        IoTime { limit, first, exact: !real_time, ..Self::unlimited() }
    }

    /// Starts the I/O of a turn at `now`.
    #[inline]
    pub(crate) fn begin(&mut self, now: u64) {
        (self.began, self.read_at, self.left, self.over) = (now, now, self.first, false);
    }

    fn interval(&self) -> u32 {
        if self.exact || self.careful > 0 { 1 } else { INTERVAL }
    }

    /// Returns the number of units that may be started before the clock is read.
    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Counts units that were started elsewhere.
    #[inline]
    pub(crate) fn set_left(&mut self, left: u32) {
        self.left = left;
    }

    /// Returns whether the next unit of work has to wait for the next turn. Reads the clock if
    /// necessary.
    #[inline]
    pub(crate) fn is_over(&mut self, time: &TimeSource) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.read_clock(time)
    }

    #[cold]
    fn read_clock(&mut self, time: &TimeSource) -> bool {
        if self.limit == u64::MAX {
            self.left = u32::MAX;
            return false;
        }
        if self.over {
            return true;
        }
        // Set first: a clock that panics must not be read again immediately.
        self.left = 1;
        let now = time.now().max(self.read_at);
        self.readings += 1;
        self.left = self.interval() - 1;
        if now - self.read_at > self.limit / SLOW_PART {
            (self.careful, self.first, self.left) = (CAREFUL_TURNS, 1, 0);
        }
        self.read_at = now;
        if now - self.began >= self.limit {
            (self.over, self.left) = (true, 0);
        }
        self.over
    }

    /// Returns whether the I/O of this turn was interrupted by the limit.
    #[inline]
    pub(crate) fn was_cut(&self) -> bool {
        self.over
    }

    /// Returns the last reading of the clock, from the I/O of this turn or earlier.
    #[inline]
    pub(crate) fn last_reading(&self) -> u64 {
        self.read_at
    }

    /// Records the length of a turn.
    #[inline]
    pub(crate) fn note_turn(&mut self, took: u64) {
        if took > self.limit || self.careful > 0 {
            self.take_care(took);
        }
    }

    #[cold]
    fn take_care(&mut self, took: u64) {
        self.careful = if took > self.limit { CAREFUL_TURNS } else { self.careful - 1 };
        self.first = self.interval();
    }

    /// Returns the number of readings since the last call, unless it is zero.
    #[inline]
    pub(crate) fn take_readings(&mut self) -> Option<u64> {
        (self.readings > 0).then(|| std::mem::take(&mut self.readings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::{sync::Arc, time::Duration};

    fn clock() -> (ManualClock, TimeSource) {
        let clock = ManualClock::new();
        (clock.clone(), TimeSource::new(Arc::new(clock)))
    }

    /// Returns how many of `most` units that take `each` are done before the I/O of the turn is
    /// over.
    fn units(io: &mut IoTime, clock: &ManualClock, time: &TimeSource, each: u64, most: usize) -> usize {
        io.begin(time.now());
        let began = time.now();
        let n = (0..most)
            .take_while(|_| {
                let in_time = !io.is_over(time);
                if in_time {
                    clock.advance(Duration::from_nanos(each));
                }
                in_time
            })
            .count();
        io.note_turn(time.now() - began);
        n
    }

    #[test]
    fn quick_units_share_a_reading() {
        let (clock, time) = clock();
        let mut io = IoTime::limited(20_000_000, true);
        for _ in 0..100 {
            assert_eq!(units(&mut io, &clock, &time, 5_000, 64), 64);
        }
        assert_eq!(io.take_readings(), None, "a turn with few events reads no clock");
        assert_eq!(units(&mut io, &clock, &time, 5_000, 1024), 1024);
        assert_eq!(io.take_readings(), Some(1024 / 64 - 1));
        assert_eq!(units(&mut io, &clock, &time, 5_000, 100_000), 4032, "the limit is met to within a batch");
    }

    #[test]
    fn slow_units_are_timed_one_by_one() {
        let (clock, time) = clock();
        let mut io = IoTime::limited(20_000_000, true);
        // The first slow units are not predicted.
        assert_eq!(units(&mut io, &clock, &time, 5_000_000, 1000), 64);
        for _ in 0..100 {
            assert_eq!(units(&mut io, &clock, &time, 5_000_000, 1000), 4);
            assert_eq!(units(&mut io, &clock, &time, 50_000_000, 1000), 1, "at least one unit");
        }
        // Quick units again: after some turns the clock is not read.
        for _ in 0..CAREFUL_TURNS {
            assert_eq!(units(&mut io, &clock, &time, 1_000, 64), 64);
        }
        io.take_readings();
        assert_eq!(units(&mut io, &clock, &time, 1_000, 64), 64);
        assert_eq!(io.take_readings(), None);
    }

    #[test]
    fn a_few_slow_units_in_every_turn_are_noticed() {
        let (clock, time) = clock();
        let mut io = IoTime::limited(20_000_000, true);
        assert_eq!(units(&mut io, &clock, &time, 1_000_000, 60), 60, "too few units for a reading");
        assert_eq!(units(&mut io, &clock, &time, 1_000_000, 60), 20, "timed, because the last turn was long");
    }

    #[test]
    fn a_clock_moved_by_hand_is_read_each_time() {
        let (clock, time) = clock();
        let mut io = IoTime::limited(20_000_000, false);
        assert_eq!(units(&mut io, &clock, &time, 5_000_000, 1000), 4);
    }

    #[test]
    fn a_driver_without_a_limit_reads_no_clock() {
        let (clock, time) = clock();
        let mut io = IoTime::unlimited();
        assert_eq!(units(&mut io, &clock, &time, 1 << 40, 1000), 1000);
        assert_eq!(io.take_readings(), None);
    }
}
