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
    /// The store renews it, and refuses entries of its incarnation.
    Refused,
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

/// The meaning of a granted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseGrant {
    Begun,
    Renewed,
    /// The store has refused entries of the incarnation since the request before.
    Refused,
    /// The store may have ended an earlier lease of the incarnation, and may refuse entries that
    /// the incarnation owns. The next request needs another incarnation.
    Doubtful,
}

#[derive(Debug)]
pub(super) struct NodeLeaseWatch {
    node: NodeId,
    duration: Duration,
    /// The time of the loop up to which the lease is certain.
    valid_until: u64,
    /// Whether the lease of this incarnation has begun.
    has_begun: bool,
    /// The time of the first request of this incarnation whose outcome is unknown, so that the
    /// store may have granted it.
    uncertain_since: Option<u64>,
    /// Whether the store has refused entries of this incarnation, although it has a lease.
    is_refused: bool,
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
            uncertain_since: None,
            is_refused: false,
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

    /// Returns how long a lease is certain after the time of its request. The store counts from a
    /// later time, and its clock may be faster.
    fn certain(&self) -> u64 {
        nanos(self.duration - self.duration / 10)
    }

    /// Returns whether the lease may have begun and ended without an answer.
    fn is_doubtful(&self, now: u64) -> bool {
        let since = self.uncertain_since.filter(|_| !self.has_begun);
        since.is_some_and(|since| now >= since.saturating_add(self.certain()))
    }

    /// Replaces an incarnation whose lease may have begun and ended without an answer. A store that
    /// has ended a lease may refuse entries of that incarnation, also if it begins again. Returns
    /// the replaced incarnation, whose lease has to be ended.
    ///
    /// An earlier replacement would not be safe: if the lease of the replaced incarnation has not
    /// ended, the store refuses the next one as if another node had the name.
    pub(super) fn replace_doubtful(&mut self, now: u64, incarnation: impl FnOnce() -> u64) -> Option<NodeId> {
        if self.is_asking || !self.is_doubtful(now) {
            return None;
        }
        self.uncertain_since = None;
        let next = self.node.with_incarnation(incarnation());
        Some(std::mem::replace(&mut self.node, next))
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

    /// A request of the time `asked` was granted.
    pub(super) fn granted(&mut self, asked: u64, now: u64) -> LeaseGrant {
        (self.is_asking, self.is_taken) = (false, false);
        if self.is_doubtful(now) {
            return LeaseGrant::Doubtful;
        }
        if self.is_refused {
            return LeaseGrant::Refused;
        }
        self.valid_until = asked.saturating_add(self.certain());
        match std::mem::replace(&mut self.has_begun, true) {
            false => LeaseGrant::Begun,
            true => LeaseGrant::Renewed,
        }
    }

    /// The store has refused entries of `owner`, because the lease of that incarnation has ended.
    /// Returns whether that was not known, so that the lease has to be renewed to learn the reason.
    pub(super) fn refused(&mut self, owner: &NodeId) -> bool {
        if self.node != *owner || !self.has_begun || self.is_refused {
            return false;
        }
        (self.valid_until, self.is_refused) = (0, true);
        true
    }

    /// A request of the time `asked` failed.
    pub(super) fn failed(&mut self, asked: u64, may_be_granted: bool) {
        self.is_asking = false;
        if may_be_granted {
            self.uncertain_since.get_or_insert(asked);
        }
    }

    /// The lease has ended, or was refused: the node goes on once no other node with the same name
    /// has a lease. An incarnation that certainly had none is kept, because the store knows nothing
    /// of it. Any other one is replaced by `next`.
    pub(super) fn ended(&mut self, next: NodeId, loss: LeaseLoss) -> LeaseEnd {
        let is_taken = loss == LeaseLoss::Taken;
        let had_begun = self.has_begun;
        let may_have_begun = had_begun || self.uncertain_since.is_some();
        let is_new = had_begun || is_taken != self.is_taken;
        let node = if may_have_begun { next } else { self.node.clone() };
        *self = NodeLeaseWatch { is_again: true, is_taken, ..NodeLeaseWatch::new(node, self.duration) };
        LeaseEnd { had_begun, may_have_begun, is_new }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_lease_is_valid_for_less_than_its_duration_from_the_request() {
        let node = NodeId::new("a", 1).unwrap();
        let mut watch = NodeLeaseWatch::new(node.clone(), Duration::from_secs(10));
        assert!(!watch.is_valid(0));
        assert_eq!(watch.request(), Some(NodeLease::begin(node.clone(), Duration::from_secs(10))));
        assert_eq!(watch.request(), None, "one is under way");
        assert_eq!(watch.granted(1_000_000_000, 2_000_000_000), LeaseGrant::Begun);
        assert!(watch.is_valid(9_999_999_999) && !watch.is_valid(10_000_000_000));
        assert_eq!(watch.request(), Some(NodeLease::renew(node, Duration::from_secs(10))));
        watch.failed(3_000_000_000, true);
        assert!(watch.is_valid(9_999_999_999));
        assert_eq!(watch.replace_doubtful(u64::MAX, || 2), None, "it has begun");
    }

    #[test]
    fn a_lease_that_has_ended_is_not_taken_from_another_node() {
        let (second, third) = (NodeId::new("a", 2).unwrap(), NodeId::new("a", 3).unwrap());
        let duration = Duration::from_secs(10);
        let mut watch = NodeLeaseWatch::new(NodeId::new("a", 1).unwrap(), duration);
        watch.request();
        assert_eq!(watch.granted(0, 0), LeaseGrant::Begun);
        watch.request();
        assert_eq!(watch.granted(1, 1), LeaseGrant::Renewed);
        let end = |had_begun, may_have_begun, is_new| LeaseEnd { had_begun, may_have_begun, is_new };
        assert_eq!(watch.ended(second.clone(), LeaseLoss::Taken), end(true, true, true));
        assert!(!watch.is_valid(1));
        for _ in 0..2 {
            assert_eq!(watch.request(), Some(NodeLease::begin_again(second.clone(), duration)));
            assert_eq!(watch.ended(third.clone(), LeaseLoss::Taken), end(false, false, false), "it is known");
        }
        assert_eq!(watch.request(), Some(NodeLease::begin_again(second.clone(), duration)));
        assert_eq!(watch.granted(2, 2), LeaseGrant::Begun);
        assert!(watch.is_valid(2));
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
        watch.failed(0, true);
        assert_eq!(watch.request(), Some(NodeLease::begin(first, duration)));
        // Another node has begun since the reply was lost, and the store has ended the first lease.
        let end = watch.ended(second.clone(), LeaseLoss::Taken);
        assert_eq!(end, LeaseEnd { had_begun: false, may_have_begun: true, is_new: true });
        assert_eq!(watch.request(), Some(NodeLease::begin_again(second, duration)));
    }

    /// A watch of "a:1" with a lease of ten seconds, whose first request of the time 0 has failed.
    fn failed_at_first(may_be_granted: bool) -> NodeLeaseWatch {
        let mut watch = NodeLeaseWatch::new(NodeId::new("a", 1).unwrap(), Duration::from_secs(10));
        watch.request();
        watch.failed(0, may_be_granted);
        watch
    }

    #[test]
    fn an_incarnation_whose_lease_may_have_begun_and_ended_is_replaced() {
        let (first, second) = (NodeId::new("a", 1).unwrap(), NodeId::new("a", 2).unwrap());
        let mut watch = failed_at_first(true);
        for asked in [3 * SECOND, 8 * SECOND] {
            assert_eq!(watch.replace_doubtful(asked, || 2), None, "its lease would refuse another one");
            assert_eq!(watch.request().unwrap().node, first);
            watch.failed(asked, true);
        }
        assert_eq!(watch.replace_doubtful(9 * SECOND, || 2), Some(first));
        assert_eq!(watch.request(), Some(NodeLease::begin(second, Duration::from_secs(10))));
        assert_eq!(watch.replace_doubtful(99 * SECOND, || 3), None, "a request is under way");
        assert_eq!(watch.granted(9 * SECOND, 20 * SECOND), LeaseGrant::Begun, "it was asked for once");
    }

    #[test]
    fn a_late_grant_of_a_repeated_request_is_doubtful() {
        let mut watch = failed_at_first(true);
        watch.request();
        // The store may have ended the lease of the first request before it granted this one.
        assert_eq!(watch.granted(8 * SECOND, 9 * SECOND), LeaseGrant::Doubtful);
        assert!(!watch.is_valid(9 * SECOND));
        assert_eq!(watch.replace_doubtful(9 * SECOND, || 2), Some(NodeId::new("a", 1).unwrap()));
        let mut watch = failed_at_first(true);
        watch.request();
        assert_eq!(watch.granted(8 * SECOND, 9 * SECOND - 1), LeaseGrant::Begun);
        assert!(watch.is_valid(17 * SECOND - 1));
    }

    #[test]
    fn an_incarnation_whose_entries_are_refused_has_no_lease() {
        let (first, second) = (NodeId::new("a", 1).unwrap(), NodeId::new("a", 2).unwrap());
        let mut watch = NodeLeaseWatch::new(first.clone(), Duration::from_secs(10));
        assert!(!watch.refused(&first), "it has not begun");
        watch.request();
        watch.granted(0, 0);
        assert!(!watch.refused(&second), "it is another incarnation");
        assert!(watch.refused(&first) && !watch.refused(&first), "it is known");
        assert!(!watch.is_valid(1));
        watch.request();
        watch.failed(1, true);
        watch.request();
        assert_eq!(watch.granted(2, 2), LeaseGrant::Refused);
        let end = watch.ended(second.clone(), LeaseLoss::Refused);
        assert_eq!(end, LeaseEnd { had_begun: true, may_have_begun: true, is_new: true });
        watch.request();
        assert_eq!(watch.granted(3, 3), LeaseGrant::Begun);
        assert!(watch.is_valid(3) && !watch.refused(&first));
    }

    #[test]
    fn an_incarnation_that_was_certainly_refused_is_kept() {
        let mut watch = failed_at_first(false);
        assert_eq!(watch.replace_doubtful(99 * SECOND, || 2), None);
        watch.request();
        assert_eq!(watch.granted(99 * SECOND, 99 * SECOND), LeaseGrant::Begun);
    }
}
