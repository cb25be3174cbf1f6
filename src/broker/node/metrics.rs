//! `BrokerMetrics`: counters of a node.

use crate::metrics::{Counter, metric_table};
#[cfg(any(feature = "prometheus", test))]
use crate::metrics::{Metric, Value};

metric_table! {
    /// The counters behind [`BrokerMetrics`].
    pub(in crate::broker) struct Metrics;

    /// Counters of [`Topics`](crate::broker::Topics) since the start of the node.
    pub struct BrokerMetrics;

    prefix "broker_";
    /// Topics of this node: those with handles or members.
    topics: gauge;
    /// Partitions that the node follows.
    followed_partitions: gauge;
    /// Interruptions of the events of a partition.
    interruptions: counter;
    /// Messages of this node that were stored.
    published: counter;
    /// Messages of this node that were stored before, with the same id.
    duplicates: counter;
    /// Messages of this node that were not stored, or perhaps not.
    publish_failures: counter;
    /// Messages that were passed to the members of this node only, because the broker could not be
    /// reached.
    published_locally: counter;
    /// Messages that were passed to the members of this node.
    delivered: counter;
    /// Ephemeral messages that were passed to the members of this node.
    notified: counter;
    /// Messages that the format of their topic did not understand.
    undecodable: counter;
    /// Deliveries that were delayed, because too many broadcasts were waiting.
    delayed: counter;
    /// Members that were closed because their loop did not accept a message.
    unreached: counter;
    /// New members.
    joined: counter;
    /// New members that could not be served from their position.
    not_recovered: counter;
    /// Reads of the history.
    reads: counter;
    /// Reads that failed.
    read_failures: counter;
    /// Gaps in the sequence of a partition: events were lost on the way.
    gaps: counter;
    /// Questions about a partition.
    verifications: counter;
    /// Questions that were not answered.
    verify_failures: counter;
    /// Topics whose store has lost messages that members had received.
    rewound: counter;
    /// Topics whose history was trimmed before this node has read it.
    trimmed: counter;
    /// Changes of entries in the replicas of maps.
    map_changes: counter;
    /// Updates of maps by this node that were made.
    map_updates: counter;
    /// Updates of maps by this node that were not made, or perhaps not.
    map_update_failures: counter;
    /// Reads of whole maps.
    snapshots: counter;
    /// Reads of whole maps that failed.
    snapshot_failures: counter;
    /// Entries of maps that this node held, and that were replaced.
    entries_lost: counter;
    /// Renewals of the lease that failed.
    lease_failures: counter;
    /// Leases that ended before they were renewed.
    leases_lost: counter;
    /// How often this node noticed that another node with the same name has the lease.
    leases_taken: counter;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_all_metrics_of_topics() {
        Metric::check_documentation(&Metrics::default().snapshot().rows());
    }
}
