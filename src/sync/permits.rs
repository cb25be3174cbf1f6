//! A counting semaphore that never blocks.
//!
//! Invariants: the number of permits taken never exceeds the limit. If a permit is free, at least
//! one of several concurrent calls of `take` succeeds. Permits carry no data, so they give no
//! ordering guarantee.

use super::primitives::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Permits {
    limit: usize,
    taken: AtomicUsize,
}

impl Permits {
    pub(crate) fn new(limit: usize) -> Self {
        Permits { limit, taken: AtomicUsize::new(0) }
    }

    /// Takes a permit. Returns `false` if none is free.
    pub(crate) fn take(&self) -> bool {
        self.take_below(self.limit)
    }

    /// Like [`take`](Permits::take), with a limit of the caller instead of the total number.
    pub(crate) fn take_below(&self, limit: usize) -> bool {
        let one_more = |taken: usize| (taken < limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Gives back a permit that was taken.
    pub(crate) fn give_back(&self) {
        let before = self.taken.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a permit is given back only after it was taken");
    }

    /// Returns the number of permits taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns the total number of permits.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}
