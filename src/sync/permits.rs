//! A bounded number of places that threads take and give back.
//!
//! Always holds: never more are taken than there are, however many threads take at once; as long as one is free, of those
//! who try at once at least one gets it. Only the number matters: nothing is handed over with a place, so no order is
//! promised with it.

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

    /// Takes a place; false if there is none.
    pub(crate) fn take(&self) -> bool {
        let one_more = |taken: usize| (taken < self.limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Gives one back that was taken.
    pub(crate) fn give_back(&self) {
        let before = self.taken.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "it was taken");
    }

    /// How many are taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}
