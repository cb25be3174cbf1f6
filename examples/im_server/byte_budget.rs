//! A bound for the bytes that messages occupy while they wait.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A number of bytes that may be in use at the same time. Thread-safe.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    used: AtomicUsize,
    limit: usize,
}

/// Bytes in use; dropping it releases them.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl ByteBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(ByteBudget { used: AtomicUsize::new(0), limit })
    }

    /// Takes `bytes`; returns `None` and takes nothing if fewer are left.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let take = |used: usize| used.checked_add(bytes).filter(|total| *total <= self.limit);
        // A count of bytes orders no other memory.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Charge { budget: self.clone(), bytes })
    }

    /// Bytes in use.
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
