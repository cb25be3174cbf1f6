//! `NodeLeases`: the nodes of this process that are alive.
//!
//! The leases are kept in memory: all nodes of the file are in this process, and none of them
//! survives it. An owner of entries without a lease is one of an earlier process, or its lease has
//! ended.

use crate::broker::store::{BrokerError, LeaseKind, NodeId, NodeLease};
use std::collections::BTreeMap;

/// Leases by the names of their nodes, with the times at which they end.
#[derive(Debug, Default)]
pub(super) struct NodeLeases(BTreeMap<String, (NodeId, i64)>);

impl NodeLeases {
    /// Begins or renews a lease. Times are in milliseconds.
    pub(super) fn renew(&mut self, lease: &NodeLease, now: i64) -> Result<(), BrokerError> {
        let ends = now.saturating_add(super::tables::millis(lease.duration));
        let name = lease.node.name();
        let alive = self.0.get(name).filter(|(_, ends)| *ends > now);
        match (lease.kind, alive) {
            (LeaseKind::BeginAgain | LeaseKind::Renew, Some((found, _))) if *found != lease.node => {
                return Err(BrokerError::LeaseTaken);
            }
            (LeaseKind::Renew, None) => return Err(BrokerError::LeaseEnded),
            _ => {}
        }
        self.0.insert(name.to_owned(), (lease.node.clone(), ends));
        Ok(())
    }

    pub(super) fn is_alive(&self, node: &NodeId, now: i64) -> bool {
        self.0.get(node.name()).is_some_and(|(found, ends)| found == node && *ends > now)
    }

    pub(super) fn end(&mut self, node: &NodeId) {
        if self.0.get(node.name()).is_some_and(|(found, _)| found == node) {
            self.0.remove(node.name());
        }
    }

    /// Removes the leases that were not renewed in time, and returns their nodes.
    pub(super) fn take_expired(&mut self, now: i64) -> Vec<NodeId> {
        let expired: Vec<NodeId> =
            self.0.values().filter(|(_, ends)| *ends <= now).map(|(node, _)| node.clone()).collect();
        expired.iter().for_each(|node| self.end(node));
        expired
    }
}
