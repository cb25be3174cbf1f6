//! `NodeLeaseWatch`: whether this node still has its lease, by its own clock. Pure.
//!
//! Invariant: the node does not believe to have a lease that the store may have ended, unless its
//! clock is slower than that of the store by a tenth.

use crate::broker::store::{NodeId, NodeLease};
use crate::clock::nanos;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct NodeLeaseWatch {
    node: NodeId,
    duration: Duration,
    /// The time of the loop up to which the lease is certain.
    valid_until: u64,
    /// Whether the lease has begun.
    has_begun: bool,
    is_asking: bool,
}

impl NodeLeaseWatch {
    pub(super) fn new(node: NodeId, duration: Duration) -> Self {
        NodeLeaseWatch { node, duration, valid_until: 0, has_begun: false, is_asking: false }
    }

    pub(super) fn node(&self) -> &NodeId {
        &self.node
    }

    pub(super) fn is_valid(&self, now: u64) -> bool {
        self.has_begun && now < self.valid_until
    }

    /// Returns the next request, unless one is under way.
    pub(super) fn request(&mut self) -> Option<NodeLease> {
        if std::mem::replace(&mut self.is_asking, true) {
            return None;
        }
        let (node, duration) = (self.node.clone(), self.duration);
        Some(if self.has_begun { NodeLease::renew(node, duration) } else { NodeLease::begin(node, duration) })
    }

    /// A request of the time `asked` was granted.
    pub(super) fn granted(&mut self, asked: u64) {
        self.is_asking = false;
        self.has_begun = true;
        // The store counts from a later time. Its clock may be faster.
        self.valid_until = asked.saturating_add(nanos(self.duration - self.duration / 10));
    }

    /// The request failed.
    pub(super) fn failed(&mut self) {
        self.is_asking = false;
    }

    /// The lease has ended: the node goes on with another incarnation.
    pub(super) fn ended(&mut self, next: NodeId) {
        let duration = self.duration;
        *self = NodeLeaseWatch::new(next, duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_valid_for_less_than_its_duration_from_the_request() {
        let node = NodeId::new("a", 1).unwrap();
        let mut watch = NodeLeaseWatch::new(node.clone(), Duration::from_secs(10));
        assert!(!watch.is_valid(0));
        assert_eq!(watch.request(), Some(NodeLease::begin(node.clone(), Duration::from_secs(10))));
        assert_eq!(watch.request(), None, "one is under way");
        watch.granted(1_000_000_000);
        assert!(watch.is_valid(9_999_999_999) && !watch.is_valid(10_000_000_000));
        assert_eq!(watch.request(), Some(NodeLease::renew(node, Duration::from_secs(10))));
        watch.failed();
        assert!(watch.is_valid(9_999_999_999));
        watch.ended(NodeId::new("a", 2).unwrap());
        assert!(!watch.is_valid(0));
        assert!(watch.request().is_some_and(|lease| lease.is_new));
    }
}
