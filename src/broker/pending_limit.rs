//! `PendingLimit`: how many operations, and how many bytes, may wait.

use crate::sync::Permits;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The largest number of bytes that wait.
pub(in crate::broker) const MAX_PENDING_BYTES: usize = 64 << 20;

/// Limits the operations that wait, and the bytes that they carry.
#[derive(Debug)]
pub(in crate::broker) struct PendingLimit {
    operations: Permits,
    bytes: AtomicUsize,
    max_bytes: usize,
}

impl PendingLimit {
    pub(in crate::broker) fn new(operations: usize, max_bytes: usize) -> Arc<Self> {
        Arc::new(PendingLimit { operations: Permits::new(operations), bytes: AtomicUsize::new(0), max_bytes })
    }

    /// Takes a permit for an operation with this number of bytes. `None` if a limit is reached. An
    /// operation that alone exceeds the limit passes if no other one waits.
    pub(in crate::broker) fn take(self: &Arc<Self>, bytes: usize) -> Option<PendingPermit> {
        if !self.operations.take() {
            return None;
        }
        let more = |taken: usize| {
            let sum = taken.saturating_add(bytes);
            (taken == 0 || sum <= self.max_bytes).then_some(sum)
        };
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            self.operations.give_back();
            return None;
        }
        Some(PendingPermit { limit: self.clone(), bytes })
    }

    /// Returns the number of operations that wait.
    #[cfg(any(test, feature = "broker-sqlite"))]
    pub(in crate::broker) fn taken(&self) -> usize {
        self.operations.taken()
    }

    /// Returns the largest number of operations.
    #[cfg(feature = "broker-sqlite")]
    pub(in crate::broker) fn operations(&self) -> usize {
        self.operations.limit()
    }
}

/// A permit that is given back when it is dropped.
#[derive(Debug)]
pub(in crate::broker) struct PendingPermit {
    limit: Arc<PendingLimit>,
    bytes: usize,
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        self.limit.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.limit.operations.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_bytes_are_limited() {
        let limit = PendingLimit::new(3, 10);
        let first = limit.take(6);
        assert!(first.is_some() && limit.take(5).is_none());
        let others = [limit.take(4), limit.take(0)];
        assert!(others.iter().all(Option::is_some) && limit.take(0).is_none());
        drop((first, others));
        assert_eq!(limit.taken(), 0);
        let large = limit.take(11);
        assert!(large.is_some() && limit.take(0).is_none(), "a large one passes alone");
    }
}
