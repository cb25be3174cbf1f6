//! `LeaseEvent`: the events of a node's lease.

use crate::broker::store::NodeId;
use std::sync::Arc;

/// An event of the lease of this node. See
/// [`TopicsBuilder::on_lease`](crate::broker::TopicsBuilder::on_lease).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseEvent {
    /// The node has a lease with this id. It owns no entries of maps yet.
    Begun(NodeId),
    /// The lease was not renewed in time, or the store refuses entries of this id. The entries of
    /// this id are removed, and the node asks for a lease with another id.
    Ended(NodeId),
    /// Another node with the same name has the lease. The entries of this id, if it had the lease,
    /// are removed. This node gets a lease when that of the other one has ended.
    Taken(NodeId),
}

/// A callback for the events of the lease.
pub(in crate::broker) type OnLease = Arc<dyn Fn(LeaseEvent) + Send + Sync>;
