//! `NodeLeaseWatch`: whether this node still has its lease, by its own clock. Pure.
//!
//! Invariant: the node does not believe to have a lease that the store may have ended, unless its
//! clock is slower than that of the store by a tenth.

use crate::broker::store::{NodeId, NodeLease};
use crate::clock::nanos;
use std::time::Duration;

/// Why a lease has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseLoss {
    /// It was not renewed in time.
    Expired,
    /// Another node with the same name has one.
    Taken,
}

/// The end of a lease, or the refusal of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseEnd {
    /// Whether the incarnation had a lease.
    pub(super) had_begun: bool,
    /// Whether the store may know the incarnation.
    pub(super) may_have_begun: bool,
    /// Whether the loss was not known before.
    pub(super) is_new: bool,
}

#[derive(Debug)]
pub(super) struct NodeLeaseWatch {
    node: NodeId,
    duration: Duration,
    /// The time of the loop up to which the lease is certain.
    valid_until: u64,
    /// Whether the lease of this incarnation has begun.
    has_begun: bool,
    /// Whether a request of this incarnation has failed, so that the store may have granted it.
    is_uncertain: bool,
    /// Whether an earlier incarnation of this process had a lease.
    is_again: bool,
    /// Whether another node with the same name had the lease when it was asked for last.
    is_taken: bool,
    is_asking: bool,
}

impl NodeLeaseWatch {
    pub(super) fn new(node: NodeId, duration: Duration) -> Self {
        NodeLeaseWatch {
            node,
            duration,
            valid_until: 0,
            has_begun: false,
            is_uncertain: false,
            is_again: false,
            is_taken: false,
            is_asking: false,
        }
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
        Some(match (self.has_begun, self.is_again) {
            (true, _) => NodeLease::renew(node, duration),
            (false, true) => NodeLease::begin_again(node, duration),
            (false, false) => NodeLease::begin(node, duration),
        })
    }

    /// A request of the time `asked` was granted. Returns whether the lease has begun.
    pub(super) fn granted(&mut self, asked: u64) -> bool {
        (self.is_asking, self.is_taken) = (false, false);
        // The store counts from a later time. Its clock may be faster.
        self.valid_until = asked.saturating_add(nanos(self.duration - self.duration / 10));
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// The request failed.
    pub(super) fn failed(&mut self) {
        (self.is_asking, self.is_uncertain) = (false, true);
    }

    /// The lease has ended, or was refused: the node goes on once no other node with the same name
    /// has a lease. An incarnation that certainly had none is kept, because the store knows nothing
    /// of it. Any other one is replaced by `next`.
    pub(super) fn ended(&mut self, next: NodeId, loss: LeaseLoss) -> LeaseEnd {
        let is_taken = loss == LeaseLoss::Taken;
        let had_begun = self.has_begun;
        let may_have_begun = had_begun || self.is_uncertain;
        let is_new = had_begun || is_taken != self.is_taken;
        let node = if may_have_begun { next } else { self.node.clone() };
        *self = NodeLeaseWatch { is_again: true, is_taken, ..NodeLeaseWatch::new(node, self.duration) };
        LeaseEnd { had_begun, may_have_begun, is_new }
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
    }

    #[test]
    fn a_lease_that_has_ended_is_not_taken_from_another_node() {
        let (second, third) = (NodeId::new("a", 2).unwrap(), NodeId::new("a", 3).unwrap());
        let duration = Duration::from_secs(10);
        let mut watch = NodeLeaseWatch::new(NodeId::new("a", 1).unwrap(), duration);
        watch.request();
        assert!(watch.granted(0));
        watch.request();
        assert!(!watch.granted(1));
        let end = |had_begun, may_have_begun, is_new| LeaseEnd { had_begun, may_have_begun, is_new };
        assert_eq!(watch.ended(second.clone(), LeaseLoss::Taken), end(true, true, true));
        assert!(!watch.is_valid(1));
        for _ in 0..2 {
            assert_eq!(watch.request(), Some(NodeLease::begin_again(second.clone(), duration)));
            assert_eq!(watch.ended(third.clone(), LeaseLoss::Taken), end(false, false, false), "it is known");
        }
        assert_eq!(watch.request(), Some(NodeLease::begin_again(second.clone(), duration)));
        assert!(watch.granted(2) && watch.is_valid(2));
        assert_eq!(watch.request(), Some(NodeLease::renew(second, duration)));
        assert_eq!(watch.ended(third.clone(), LeaseLoss::Expired), end(true, true, true));
        assert_eq!(watch.request(), Some(NodeLease::begin_again(third.clone(), duration)));
        let fourth = NodeId::new("a", 4).unwrap();
        assert_eq!(watch.ended(fourth, LeaseLoss::Taken), end(false, false, true), "another node has begun");
        assert_eq!(watch.node(), &third);
    }

    #[test]
    fn an_incarnation_that_may_have_had_a_lease_is_not_used_again() {
        let (first, second) = (NodeId::new("a", 1).unwrap(), NodeId::new("a", 2).unwrap());
        let duration = Duration::from_secs(10);
        let mut watch = NodeLeaseWatch::new(first.clone(), duration);
        watch.request();
        watch.failed();
        assert_eq!(watch.request(), Some(NodeLease::begin(first, duration)));
        // Another node has begun since the reply was lost, and the store has ended the first lease.
        let end = watch.ended(second.clone(), LeaseLoss::Taken);
        assert_eq!(end, LeaseEnd { had_begun: false, may_have_begun: true, is_new: true });
        assert_eq!(watch.request(), Some(NodeLease::begin_again(second, duration)));
    }
}
