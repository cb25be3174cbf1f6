//! The length of a tick, and conversion between times and ticks.
//!
//! Invariant: [`Tick::ceil`] and [`Tick::floor`] are the exact quotients, for every `u64`.
//!
//! Times of the next 292 years are multiplied by the reciprocal, after T. Granlund and P.
//! Montgomery (*Division by Invariant Integers using Multiplication*, PLDI 1994). The length of a
//! tick is not known at compile time, and a division takes several times as long as a
//! multiplication. Later times are divided.

use std::time::Duration;

/// The length of a tick in nanoseconds, at least 2 and less than 2⁶³.
#[derive(Clone, Copy)]
pub(super) struct Tick {
    ns: u64,
    /// ⌈2⁶⁴⁺ˢ / ns⌉, where 2ˢ < ns ≤ 2ˢ⁺¹. It exceeds the true reciprocal by less than 1 / 2⁶³ of
    /// itself. The product with a time below 2⁶³, divided by 2⁶⁴⁺ˢ, therefore has the quotient as
    /// its integer part.
    reciprocal: u64,
    shift: u32,
}

impl Tick {
    /// Times below this limit are multiplied by the reciprocal.
    const NEAR: u64 = 1 << 63;

    pub(super) fn new(ns: u64) -> Self {
        debug_assert!((2..Self::NEAR).contains(&ns), "a reciprocal would not fit");
        let shift = (ns - 1).ilog2();
        let reciprocal = (1u128 << (64 + shift)).div_ceil(u128::from(ns)) as u64;
        Self { ns, reciprocal, shift }
    }

    pub(super) fn length(self) -> Duration {
        Duration::from_nanos(self.ns)
    }

    #[inline]
    fn divide_near(self, time: u64) -> u64 {
        ((u128::from(time) * u128::from(self.reciprocal)) >> 64) as u64 >> self.shift
    }

    /// Returns the last tick that has begun at `time`.
    #[inline]
    pub(super) fn floor(self, time: u64) -> u64 {
        if time < Self::NEAR { self.divide_near(time) } else { self.floor_far(time) }
    }

    /// Returns the first tick that does not begin before `time`.
    #[inline]
    pub(super) fn ceil(self, time: u64) -> u64 {
        // Zero wraps around to the maximum and takes the slow path.
        let before = time.wrapping_sub(1);
        if before < Self::NEAR { self.divide_near(before) + 1 } else { self.ceil_far(time) }
    }

    #[cold]
    #[inline(never)]
    fn floor_far(self, time: u64) -> u64 {
        time / self.ns
    }

    #[cold]
    #[inline(never)]
    fn ceil_far(self, time: u64) -> u64 {
        time.div_ceil(self.ns)
    }

    /// Returns the start of a tick, saturating at the end of time.
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
        let mut lengths =
            vec![2, 3, 7, 1_000_000, 100_000_000, 1 << 24, i64::MAX as u64 / 2, i64::MAX as u64];
        lengths.extend((0..60).map(|shift| (next() >> 1 >> shift).max(2)));
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
