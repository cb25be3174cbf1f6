//! The leases of nodes, and the entries of maps that they own. Pure.

use crate::broker::store::{
    error::BrokerError,
    lease::{LeaseKind, NodeId, NodeLease},
    topic_name::TopicName,
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// The entries of one node.
pub(super) type OwnedEntries = BTreeSet<(TopicName, Bytes)>;

#[derive(Debug, Default)]
pub(super) struct Leases {
    /// By the name of the node.
    leases: BTreeMap<Arc<str>, Granted>,
    /// Nodes whose lease was taken over, and whose entries have to be removed.
    lost: BTreeSet<NodeId>,
    owned: BTreeMap<NodeId, OwnedEntries>,
}

#[derive(Debug)]
struct Granted {
    node: NodeId,
    at: Instant,
    duration: Duration,
}

impl Granted {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= self.duration
    }
}

impl Leases {
    pub(super) fn renew(&mut self, lease: NodeLease, now: Instant) -> Result<(), BrokerError> {
        let NodeLease { node, duration, kind } = lease;
        let alive = self.leases.get(node.name()).filter(|granted| !granted.is_over(now));
        match (kind, alive) {
            (LeaseKind::BeginAgain | LeaseKind::Renew, Some(granted)) if granted.node != node => {
                return Err(BrokerError::LeaseTaken);
            }
            (LeaseKind::Renew, None) => return Err(BrokerError::LeaseEnded),
            _ => {}
        }
        let before =
            self.leases.insert(node.name().into(), Granted { node: node.clone(), at: now, duration });
        self.lost.extend(before.map(|before| before.node).filter(|before| *before != node));
        Ok(())
    }

    pub(super) fn is_alive(&self, node: &NodeId, now: Instant) -> bool {
        self.leases.get(node.name()).is_some_and(|granted| granted.node == *node && !granted.is_over(now))
    }

    pub(super) fn set_owner(
        &mut self,
        entry: &(TopicName, Bytes),
        before: Option<&NodeId>,
        after: Option<&NodeId>,
    ) {
        if let Some(before) = before
            && let Some(owned) = self.owned.get_mut(before)
        {
            owned.remove(entry);
            if owned.is_empty() {
                self.owned.remove(before);
            }
        }
        if let Some(after) = after {
            self.owned.entry(after.clone()).or_default().insert(entry.clone());
        }
    }

    /// Returns the nodes whose lease is over, and ends it.
    pub(super) fn take_lost(&mut self, now: Instant) -> Vec<NodeId> {
        let mut lost = std::mem::take(&mut self.lost);
        self.leases.retain(|_, granted| {
            let is_over = granted.is_over(now);
            if is_over {
                lost.insert(granted.node.clone());
            }
            !is_over
        });
        lost.into_iter().collect()
    }

    /// Ends a lease, and returns the entries of the node.
    pub(super) fn end(&mut self, node: &NodeId) -> OwnedEntries {
        if self.leases.get(node.name()).is_some_and(|granted| granted.node == *node) {
            self.leases.remove(node.name());
        }
        self.lost.remove(node);
        self.owned.remove(node).unwrap_or_default()
    }
}
