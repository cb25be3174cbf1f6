//! `ClockWatch`: detects jumps of the wall clock. A jump that is probably wrong is ignored for a
//! minute.

/// A difference between the two clocks that counts as a jump, in milliseconds. Slewing and rounding
/// stay below it.
const JUMP: i64 = 500;

/// A jump that may be a mistake, in milliseconds: a day.
const DOUBTFUL: i64 = 24 * 3600 * 1000;

/// How long a doubtful jump forward must last before it is believed, in nanoseconds: a minute.
const PROOF: u64 = 60_000_000_000;

/// Compares the wall clock with the monotonic one.
///
/// A jump forward by years fires everything at once, and nothing can undo that. So a jump by more
/// than a day counts only after it has lasted for a minute. Until then, the time goes on as before
/// the jump, which is earlier than the wall clock: so no timer fires early. A jump back is followed
/// at once. If the clock returns within a minute, the return is no jump.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    last: Option<Reading>,
    doubt: Option<Doubt>,
}

/// Both clocks at one instant, in milliseconds and nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Reading {
    wall: i64,
    monotonic: u64,
}

impl Reading {
    /// Returns the wall time that follows from the monotonic clock.
    fn wall_at(self, monotonic: u64) -> i64 {
        let passed = monotonic.saturating_sub(self.monotonic) / 1_000_000;
        self.wall.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
    }
}

/// A jump that may be a mistake.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    /// Before the jump.
    before: Reading,
    /// When it was noticed.
    since: u64,
}

/// What a look at the clocks has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observed {
    /// The time that counts.
    pub(crate) wall: i64,
    /// By how many milliseconds the wall clock has jumped since the last look.
    pub(crate) jump: Option<i64>,
    /// Whether the time that counts has jumped back.
    pub(crate) is_back: bool,
    /// Whether the wall clock is not believed at the moment.
    pub(crate) is_doubtful: bool,
}

impl ClockWatch {
    /// Takes both clocks.
    pub(crate) fn observe(&mut self, wall: i64, monotonic: u64) -> Observed {
        let now = Reading { wall, monotonic };
        let Some(last) = self.last.replace(now) else {
            return Observed { wall, jump: None, is_back: false, is_doubtful: false };
        };
        let believed = self
            .doubt
            .map_or(last.wall_at(monotonic), |doubt| doubt.expected(last.wall_at(monotonic), monotonic));
        let jump = wall.saturating_sub(last.wall_at(monotonic));
        match self.doubt {
            Some(doubt) if doubt.is_over(now) => self.doubt = None,
            None if jump.abs() > DOUBTFUL => self.doubt = Some(Doubt { before: last, since: monotonic }),
            _ => {}
        }
        let wall = self.believed(wall, monotonic);
        Observed {
            wall,
            jump: (jump.abs() >= JUMP).then_some(jump),
            is_back: believed.saturating_sub(wall) >= JUMP,
            is_doubtful: wall != now.wall,
        }
    }

    /// Returns the time that counts, as far as the last look tells.
    pub(crate) fn believed(&self, wall: i64, monotonic: u64) -> i64 {
        self.doubt.map_or(wall, |doubt| doubt.expected(wall, monotonic))
    }
}

impl Doubt {
    /// Returns the time that counts while the wall clock shows `wall`.
    fn expected(&self, wall: i64, monotonic: u64) -> i64 {
        wall.min(self.before.wall_at(monotonic))
    }

    /// Returns whether the clock is back, or the jump has lasted for long enough.
    fn is_over(&self, now: Reading) -> bool {
        let is_back = now.wall.saturating_sub(self.before.wall_at(now.monotonic)).abs() <= DOUBTFUL;
        is_back || now.monotonic.saturating_sub(self.since) >= PROOF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const YEARS: i64 = 3650 * DOUBTFUL;

    /// Looks once per second at a clock that shows `offset` beside the right time, and returns by
    /// how much the time that counts differs from the right one.
    fn offsets(offsets: impl IntoIterator<Item = i64>) -> Vec<i64> {
        let mut watch = ClockWatch::default();
        let look = |(second, offset): (i64, i64)| {
            let right = 1_700_000_000_000 + second * 1000;
            let seen = watch.observe(right + offset, second.unsigned_abs() * SECOND);
            assert_eq!(watch.believed(right + offset, second.unsigned_abs() * SECOND), seen.wall);
            seen.wall - right
        };
        (0..).zip(offsets).map(look).collect()
    }

    #[test]
    fn a_jump_by_years_counts_after_a_minute() {
        let mut clock = vec![0, 0];
        clock.extend([YEARS; 70]);
        let seen = offsets(clock);
        assert_eq!(seen[2..62], [0; 60]);
        assert_eq!(seen[62..], [YEARS; 10]);
    }

    #[test]
    fn a_glitch_of_a_few_seconds_does_not_count() {
        assert_eq!(offsets([0, 0, YEARS, YEARS, YEARS, 0, 7, 7, YEARS, 0]), [0, 0, 0, 0, 0, 0, 7, 7, 7, 0]);
    }

    #[test]
    fn a_jump_back_counts_at_once_and_so_does_its_end() {
        assert_eq!(offsets([0, -YEARS, -YEARS, 0, 0]), [0, -YEARS, -YEARS, 0, 0]);
    }

    #[test]
    fn smaller_jumps_count_at_once() {
        assert_eq!(offsets([0, DOUBTFUL, 0, -DOUBTFUL]), [0, DOUBTFUL, 0, -DOUBTFUL]);
    }

    #[test]
    fn a_clock_that_goes_on_jumping_is_believed_a_minute_after_the_first_jump() {
        let clock = std::iter::once(0).chain((1..100).map(|second| YEARS + second * 2 * DOUBTFUL));
        let seen = offsets(clock);
        assert_eq!(seen[..61], [0; 61]);
        assert_eq!(seen[61], YEARS + 61 * 2 * DOUBTFUL);
    }

    #[test]
    fn a_jump_back_of_the_time_that_counts_is_reported_and_others_are_not() {
        let mut watch = ClockWatch::default();
        let mut look = |wall, second: u64| watch.observe(wall, second * SECOND).is_back;
        assert!(!look(YEARS, 0));
        assert!(!look(3 * YEARS, 1), "a glitch");
        assert!(!look(YEARS + 2000, 2), "its end");
        assert!(!look(YEARS + 100_000, 3));
        assert!(look(YEARS + 4000, 4));
    }
}
