//! The leases of nodes, and the entries of maps that they own. Pure.

use crate::broker::store::{
    error::BrokerError,
    lease::{NodeId, NodeLease},
    leases::NodeLeases,
    topic_name::TopicName,
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// The entries of one node.
pub(super) type OwnedEntries = BTreeSet<(TopicName, Bytes)>;

#[derive(Debug, Default)]
pub(super) struct Leases {
    alive: NodeLeases,
    /// Nodes whose lease was taken over, and whose entries have to be removed.
    lost: BTreeSet<NodeId>,
    owned: BTreeMap<NodeId, OwnedEntries>,
}

impl Leases {
    pub(super) fn renew(&mut self, lease: NodeLease, now: Instant) -> Result<(), BrokerError> {
        self.lost.extend(self.alive.renew(&lease, now)?);
        Ok(())
    }

    pub(super) fn is_alive(&self, node: &NodeId, now: Instant) -> bool {
        self.alive.is_alive(node, now)
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
        lost.extend(self.alive.take_expired(now));
        lost.into_iter().collect()
    }

    /// Ends a lease, and returns the entries of the node.
    pub(super) fn end(&mut self, node: &NodeId) -> OwnedEntries {
        self.alive.end(node);
        self.lost.remove(node);
        self.owned.remove(node).unwrap_or_default()
    }
}
