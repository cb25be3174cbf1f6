//! The broadcasts of a group that are in progress.
//!
//! Invariants: there are never more broadcasts than their limit, and never more deliveries than
//! their limit and one broadcast. Shared by the broadcasters and the loops.

use crate::{
    error::{Error, Resource, Result},
    sync::Permits,
};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct WaitingDeliveries {
    broadcasts: Permits,
    /// Members that have not been reached yet, summed over the broadcasts.
    deliveries: AtomicUsize,
    max_deliveries: usize,
}

impl WaitingDeliveries {
    pub(super) fn new(max_broadcasts: usize, max_deliveries: usize) -> Self {
        WaitingDeliveries {
            broadcasts: Permits::new(max_broadcasts),
            deliveries: AtomicUsize::new(0),
            max_deliveries,
        }
    }

    /// Admits a broadcast to this number of members.
    ///
    /// # Errors
    /// [`Error::Full`] if a limit is reached.
    pub(super) fn begin(&self, members: usize) -> Result {
        // A broadcast to more members than the limit is admitted when nothing else waits.
        let add = |waiting: usize| (waiting < self.max_deliveries).then(|| waiting.saturating_add(members));
        if self.deliveries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return Err(Error::Full { resource: Resource::BroadcastDeliveries, limit: self.max_deliveries });
        }
        if !self.broadcasts.take() {
            self.end_part(members);
            return Err(Error::Full { resource: Resource::Broadcasts, limit: self.broadcasts.limit() });
        }
        Ok(())
    }

    /// Records that a loop has finished its part of a broadcast, to this number of members.
    pub(super) fn end_part(&self, members: usize) {
        let before = self.deliveries.fetch_sub(members, Ordering::Relaxed);
        debug_assert!(before >= members, "more deliveries ended than began");
    }

    /// Records that all loops have finished a broadcast.
    pub(super) fn end(&self) {
        self.broadcasts.give_back();
    }

    /// Returns the number of broadcasts that some loop has not finished.
    pub(super) fn broadcasts(&self) -> usize {
        self.broadcasts.taken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_and_deliveries_are_bounded() {
        let waiting = WaitingDeliveries::new(3, 100);
        let refused = |members| match waiting.begin(members) {
            Err(Error::Full { resource, limit }) => (resource, limit),
            other => panic!("{other:?}"),
        };
        waiting.begin(99).unwrap();
        waiting.begin(1000).unwrap();
        assert_eq!(refused(1), (Resource::BroadcastDeliveries, 100), "one broadcast may exceed it");
        waiting.end_part(1000);
        waiting.end();
        waiting.begin(0).unwrap();
        waiting.begin(0).unwrap();
        assert_eq!(refused(0), (Resource::Broadcasts, 3));
        assert_eq!(waiting.broadcasts(), 3);
        waiting.end_part(99);
        (0..3).for_each(|_| waiting.end());
        waiting.begin(5000).unwrap();
        assert_eq!(refused(1), (Resource::BroadcastDeliveries, 100));
        waiting.end_part(5000);
        waiting.begin(1).unwrap();
    }
}
