//! The length of a tick, and how times become ticks and back.
//!
//! What always holds: [`Tick::ceil`] and [`Tick::floor`] are the exact quotients, for every `u64`. They are found by a
//! multiplication with the reciprocal, as T. Granlund and P. Montgomery do (*Division by Invariant Integers using
//! Multiplication*, PLDI 1994), since the length is not known when this is compiled and to divide takes several times as
//! long.

use std::time::Duration;

/// The length of a tick in nanoseconds, at least 2.
#[derive(Clone, Copy)]
pub(super) struct Tick {
    ns: u64,
    /// ⌊2⁶⁴ / ns⌋, so that a product's upper half is the quotient or one less.
    reciprocal: u64,
}

impl Tick {
    pub(super) fn new(ns: u64) -> Self {
        debug_assert!(ns >= 2, "a reciprocal of 1 takes 65 bits");
        Self { ns, reciprocal: ((1 << 64) / u128::from(ns)) as u64 }
    }

    pub(super) fn length(self) -> Duration {
        Duration::from_nanos(self.ns)
    }

    /// Returns the number of the tick that `time` lies in, and how far into it.
    #[inline]
    fn divide(self, time: u64) -> (u64, u64) {
        let quotient = ((u128::from(time) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = time - quotient * self.ns;
        if rest < self.ns { (quotient, rest) } else { (quotient + 1, rest - self.ns) }
    }

    /// Returns the last tick that has begun at `time`.
    #[inline]
    pub(super) fn floor(self, time: u64) -> u64 {
        self.divide(time).0
    }

    /// Returns the first tick that does not begin before `time`.
    #[inline]
    pub(super) fn ceil(self, time: u64) -> u64 {
        let (quotient, rest) = self.divide(time);
        quotient + u64::from(rest != 0)
    }

    /// Returns when a tick begins; the last one ends with time.
    #[inline]
    pub(super) fn start(self, tick: u64) -> u64 {
        tick.saturating_mul(self.ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut lengths = vec![2, 3, 7, 1_000_000, 100_000_000, 1 << 24, i64::MAX as u64 / 2, u64::MAX - 1];
        lengths.extend((0..60).map(|shift| (next() >> shift).max(2)));
        for ns in lengths {
            let tick = Tick::new(ns);
            let last = u64::MAX / ns * ns;
            let mut times = vec![0, 1, ns - 1, ns, ns + 1, last - 1, last, u64::MAX - 1, u64::MAX];
            times.extend((0..if cfg!(miri) { 8 } else { 64 }).map(|shift| next() >> shift));
            for time in times {
                assert_eq!(tick.floor(time), time / ns, "{time} / {ns}");
                assert_eq!(tick.ceil(time), time.div_ceil(ns), "{time} / {ns}");
            }
        }
    }

    #[test]
    fn the_last_tick_starts_at_the_end_of_time() {
        let tick = Tick::new(10);
        assert_eq!(tick.start(7), 70);
        assert_eq!(tick.start(tick.ceil(u64::MAX)), u64::MAX);
    }
}
