//! `BrokerMetrics`: counters of a node.

use crate::metrics::Counter;
#[cfg(any(feature = "prometheus", test))]
use crate::metrics::{Metric, Value};

/// Generates the counters, their snapshot, and its rows for exporters from one list.
macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident;)+) => {
        /// The counters behind [`BrokerMetrics`].
        #[derive(Debug, Default)]
        pub(in crate::broker) struct Metrics {
            $(pub(in crate::broker) $name: Counter,)+
        }

        /// Counters of [`Topics`](crate::broker::Topics) since the start of the node.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub struct BrokerMetrics {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Metrics {
            pub(in crate::broker) fn snapshot(&self) -> BrokerMetrics {
                BrokerMetrics { $($name: self.$name.read(),)+ }
            }
        }

        #[cfg(any(feature = "prometheus", test))]
        impl BrokerMetrics {
            /// Returns a description of each field with its value, in the order of the fields.
            pub(in crate::broker) fn rows(&self) -> Vec<Metric<'static>> {
                vec![$(
                    Metric::new(stringify!($name), concat!($($doc),+), Value::$kind(self.$name))
                        .family(concat!("broker_", stringify!($name))),
                )+]
            }
        }
    };
}

metrics! {
    /// Topics of this node: those with handles or members.
    topics: Gauge;
    /// Partitions that the node follows.
    followed_partitions: Gauge;
    /// Interruptions of the events of a partition.
    interruptions: Counter;
    /// Messages of this node that were stored.
    published: Counter;
    /// Messages of this node that were stored before, with the same id.
    duplicates: Counter;
    /// Messages of this node that were not stored, or perhaps not.
    publish_failures: Counter;
    /// Messages that were passed to the members of this node only, because the broker could not be
    /// reached.
    published_locally: Counter;
    /// Messages that were passed to the members of this node.
    delivered: Counter;
    /// Ephemeral messages that were passed to the members of this node.
    notified: Counter;
    /// Messages that the format of their topic did not understand.
    undecodable: Counter;
    /// Deliveries that were delayed, because too many broadcasts were waiting.
    delayed: Counter;
    /// Members that were closed because their loop did not accept a message.
    unreached: Counter;
    /// New members.
    joined: Counter;
    /// New members that could not be served from their position.
    not_recovered: Counter;
    /// Reads of the history.
    reads: Counter;
    /// Reads that failed.
    read_failures: Counter;
    /// Gaps in the sequence of a partition: events were lost on the way.
    gaps: Counter;
    /// Questions about a partition.
    verifications: Counter;
    /// Questions that were not answered.
    verify_failures: Counter;
    /// Topics whose store has lost messages that members had received.
    rewound: Counter;
    /// Topics whose history was trimmed before this node has read it.
    trimmed: Counter;
    /// Changes of entries in the replicas of maps.
    map_changes: Counter;
    /// Updates of maps by this node that were made.
    map_updates: Counter;
    /// Updates of maps by this node that were not made, or perhaps not.
    map_update_failures: Counter;
    /// Reads of whole maps.
    snapshots: Counter;
    /// Reads of whole maps that failed.
    snapshot_failures: Counter;
    /// Entries of maps that this node held, and that were replaced.
    entries_lost: Counter;
    /// Renewals of the lease that failed.
    lease_failures: Counter;
    /// Leases that ended before they were renewed.
    leases_lost: Counter;
    /// How often this node noticed that another node with the same name has the lease.
    leases_taken: Counter;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the table in docs/observability.md with the rows. A failure prints the expected
    /// table.
    #[test]
    fn the_documentation_lists_all_metrics_of_topics() {
        let mut table = String::from("| field | Prometheus | kind | help |\n|---|---|---|---|\n");
        for row in Metrics::default().snapshot().rows() {
            let (suffix, kind) = match row.value {
                Value::Gauge(_) => ("", "gauge"),
                _ => ("_total", "counter"),
            };
            let name = format!("netwheel_{}{suffix}", row.family);
            table += &format!("| `{}` | `{name}` | {kind} | {} |\n", row.field, row.help);
        }
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/observability.md"));
        assert!(page.contains(&format!("\n\n{table}")), "docs/observability.md should have:\n\n{table}");
    }
}
