//! Random numbers of one event loop.
//!
//! Invariant: numbers depend only on the seed and on the order of the calls. A program that runs
//! its loops in a fixed order draws the same numbers each time. Thread-safe without a lock, because
//! any thread may schedule a task. Not suitable for secrets.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

/// The increment of SplitMix64: 2^64 divided by the golden ratio, and odd.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A seeded generator of random numbers, SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(AtomicU64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(AtomicU64::new(seed))
    }

    /// Returns a generator that differs in each run.
    pub(crate) fn of_system() -> Self {
        Self::new(Self::system_seed())
    }

    /// Returns a seed from the operating system.
    pub(crate) fn system_seed() -> u64 {
        // The keys of the hasher are random. std gives access to the system's generator only here.
        RandomState::new().build_hasher().finish()
    }

    /// Returns a number for each of many generators that have one seed in common.
    pub(crate) fn derive(seed: u64, n: usize) -> u64 {
        mix(seed ^ mix(n as u64))
    }

    /// Returns the next number, for example as the seed of another generator.
    pub(crate) fn next(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// Returns a number below `limit`, or zero if the limit is zero.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { fastrand::Rng::with_seed(self.next()).u64(..limit) }
    }
}

/// The finalizer of SplitMix64, a bijection. Each bit of the input changes half of the output.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_seed_decides_all_numbers() {
        let draw = |seed| {
            let random = Random::new(seed);
            std::array::from_fn::<_, 100, _>(|_| random.below(1_000_000))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // The published test vector of SplitMix64 for the seed 1234567.
        let random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_are_below_the_limit_and_reach_all_of_it() {
        let random = Random::new(1);
        let seen: HashSet<u64> = (0..1000).map(|_| random.below(10)).collect();
        assert_eq!(seen, (0..10).collect());
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }

    #[test]
    fn derived_and_system_seeds_differ() {
        let side = if cfg!(miri) { 10 } else { 100 };
        let derived: HashSet<u64> =
            (0..side as u64).flat_map(|seed| (0..side).map(move |n| Random::derive(seed, n))).collect();
        assert_eq!(derived.len(), side * side);
        assert_ne!(Random::system_seed(), Random::system_seed());
    }
}
