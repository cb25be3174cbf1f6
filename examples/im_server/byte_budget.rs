//! A limit for the bytes of queued messages.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A limit for the number of bytes in use. Thread-safe.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    used: AtomicUsize,
    limit: usize,
}

/// A share of the budget. Dropping it releases the bytes.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl ByteBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(ByteBudget { used: AtomicUsize::new(0), limit })
    }

    /// Charges `bytes` to the budget. Returns `None` and charges nothing if the limit would be
    /// exceeded.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let take = |used: usize| used.checked_add(bytes).filter(|total| *total <= self.limit);
        // Relaxed: the counter does not order other memory accesses.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Charge { budget: self.clone(), bytes })
    }

    /// Returns the number of bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
