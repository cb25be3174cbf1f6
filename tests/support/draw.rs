//! Random choices of programs of a simulation.

use netwheel::testing::simulation::seed;
use std::time::Duration;

/// A generator whose seed comes from the simulation.
pub(crate) struct Draw(fastrand::Rng);

impl Draw {
    pub(crate) fn new() -> Self {
        Draw(fastrand::Rng::with_seed(seed().expect("a program of a simulation draws")))
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns `true` in this percentage of cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())]
    }

    /// Returns at most this time.
    pub(crate) fn time(&mut self, up_to: Duration) -> Duration {
        Duration::from_nanos(self.0.u64(..=up_to.as_nanos() as u64))
    }

    /// Returns at most this many milliseconds.
    pub(crate) fn millis(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.0.u64(..=limit))
    }
}
