//! `BrokerMetrics`: counters of a node.

use crate::metrics::Counter;

/// Generates the counters and their snapshot from one list.
macro_rules! metrics {
    ($($(#[$doc:meta])+ $name:ident;)+) => {
        /// The counters behind [`BrokerMetrics`].
        #[derive(Debug, Default)]
        pub(in crate::broker) struct Metrics {
            $(pub(in crate::broker) $name: Counter,)+
        }

        /// Counters of [`Topics`](crate::broker::Topics) since the start of the node.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub struct BrokerMetrics {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Metrics {
            pub(in crate::broker) fn snapshot(&self) -> BrokerMetrics {
                BrokerMetrics { $($name: self.$name.read(),)+ }
            }
        }
    };
}

metrics! {
    /// Topics of this node: those with handles or members.
    topics;
    /// Partitions that have topics with members.
    followed_partitions;
    /// Interruptions of the events of a partition.
    interruptions;
    /// Messages of this node that were stored.
    published;
    /// Messages of this node that were stored before, with the same id.
    duplicates;
    /// Messages of this node that were not stored, or perhaps not.
    publish_failures;
    /// Messages that were passed to the members of this node only, because the broker could not be
    /// reached.
    published_locally;
    /// Messages that were passed to the members of this node.
    delivered;
    /// Ephemeral messages that were passed to the members of this node.
    notified;
    /// Messages that the format of their topic did not understand.
    undecodable;
    /// Deliveries that were delayed, because too many broadcasts were waiting.
    delayed;
    /// Members that were closed because their loop did not accept a message.
    unreached;
    /// New members.
    joined;
    /// New members that could not be served from their position.
    not_recovered;
    /// Reads of the history.
    reads;
    /// Reads that failed.
    read_failures;
    /// Gaps in the sequence of a partition: events were lost on the way.
    gaps;
    /// Questions about a partition.
    verifications;
    /// Questions that were not answered.
    verify_failures;
    /// Topics whose store has lost messages that members had received.
    rewound;
    /// Topics whose history was trimmed before this node has read it.
    trimmed;
    /// Changes of entries in the replicas of maps.
    map_changes;
    /// Updates of maps by this node that were made.
    map_updates;
    /// Updates of maps by this node that were not made, or perhaps not.
    map_update_failures;
    /// Reads of whole maps.
    snapshots;
    /// Reads of whole maps that failed.
    snapshot_failures;
    /// Entries of maps that this node held, and that were replaced.
    entries_lost;
    /// Renewals of the lease that failed.
    lease_failures;
    /// Leases that ended before they were renewed.
    leases_lost;
    /// How often this node noticed that another node with the same name has the lease.
    leases_taken;
}
