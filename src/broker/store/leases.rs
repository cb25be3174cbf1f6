//! `NodeLeases`: the nodes that are alive, for brokers that keep leases in memory. Pure.

use super::{
    error::BrokerError,
    lease::{LeaseKind, NodeId, NodeLease},
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Leases by the names of their nodes.
#[derive(Debug, Default)]
pub(in crate::broker) struct NodeLeases(BTreeMap<String, Granted>);

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

impl NodeLeases {
    /// Begins or renews a lease. Returns the node that had the lease of this name before.
    pub(in crate::broker) fn renew(
        &mut self,
        lease: &NodeLease,
        now: Instant,
    ) -> Result<Option<NodeId>, BrokerError> {
        let NodeLease { node, duration, kind } = lease;
        let alive = self.0.get(node.name()).filter(|granted| !granted.is_over(now));
        match (kind, alive) {
            (LeaseKind::BeginAgain | LeaseKind::Renew, Some(granted)) if granted.node != *node => {
                return Err(BrokerError::LeaseTaken);
            }
            (LeaseKind::Renew, None) => return Err(BrokerError::LeaseEnded),
            _ => {}
        }
        let granted = Granted { node: node.clone(), at: now, duration: *duration };
        let before = self.0.insert(node.name().to_owned(), granted);
        Ok(before.map(|before| before.node).filter(|before| before != node))
    }

    pub(in crate::broker) fn is_alive(&self, node: &NodeId, now: Instant) -> bool {
        self.0.get(node.name()).is_some_and(|granted| granted.node == *node && !granted.is_over(now))
    }

    pub(in crate::broker) fn end(&mut self, node: &NodeId) {
        if self.0.get(node.name()).is_some_and(|granted| granted.node == *node) {
            self.0.remove(node.name());
        }
    }

    /// Ends the leases that were not renewed in time, and returns their nodes.
    pub(in crate::broker) fn take_expired(&mut self, now: Instant) -> Vec<NodeId> {
        let mut expired = Vec::new();
        self.0.retain(|_, granted| {
            let is_over = granted.is_over(now);
            if is_over {
                expired.push(granted.node.clone());
            }
            !is_over
        });
        expired
    }
}
