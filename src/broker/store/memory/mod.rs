//! `MemoryBroker`: topics in the memory of one process.
//!
//! Invariants: the lock of the tables is not held while a sink is called. The events of a partition
//! reach a sink in the order of their sequence. Operations complete before they return.

mod builder;
mod leases;
mod log;
mod message_ids;
mod outbox;
mod tables;
mod topic;

pub use builder::MemoryBrokerBuilder;

use super::{
    broker::{Broker, BrokerStart, failed},
    error::BrokerError,
    event::BrokerEvent,
    history::{History, ReadRange},
    lease::{NodeId, NodeLease},
    map::{Changed, MapUpdate, Snapshot},
    partition::Partition,
    position::Position,
    publication::{Notification, Publication, Published},
    topic_name::TopicName,
    tops::{PartitionTops, TopicSeen},
};
use crate::{
    clock::Clock,
    error::Result,
    sync::{Completion, Locked},
};
use builder::MemoryLimits;
use outbox::Outboxes;
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tables::BrokerTables;
use topic::MIN_LIFE;

/// Topics in the memory of this process: the broker of a program with one node, and of tests with
/// several nodes.
///
/// A clone is the connection of another node to the same topics. Nothing survives the process.
///
/// ```
/// use netwheel::broker::MemoryBroker;
///
/// let of_node_a = MemoryBroker::new();
/// let of_node_b = of_node_a.clone();
/// ```
///
/// # Limits
///
/// [`MemoryBrokerBuilder`] sets the limits of all topics together. If the messages of all topics
/// exceed theirs, the oldest ones are removed. A follower that is too slow for 4096 events of a
/// partition is interrupted, and reads the history of its topics.
pub struct MemoryBroker {
    shared: Arc<Shared>,
    connection: OnceLock<Connection>,
}

/// What all nodes share.
struct Shared {
    tables: Locked<BrokerTables>,
}

/// One node's connection.
struct Connection {
    outboxes: Arc<Outboxes>,
    clock: Arc<dyn Clock>,
    is_closed: AtomicBool,
}

impl MemoryBroker {
    /// Creates a broker without topics, with the default limits.
    pub fn new() -> Self {
        Self::with(MemoryLimits::default())
    }

    /// Returns a builder with default settings.
    pub fn builder() -> MemoryBrokerBuilder {
        MemoryBrokerBuilder::new()
    }

    fn with(limits: MemoryLimits) -> Self {
        let shared = Arc::new(Shared { tables: Locked::new(BrokerTables::new(limits)) });
        MemoryBroker { shared, connection: OnceLock::new() }
    }

    /// Removes the newest messages of a topic without a trace, like a store that was restored from
    /// a backup, and interrupts all nodes. For tests. Returns how many messages were removed.
    pub fn lose_newest(&self, topic: &TopicName, messages: u64) -> u64 {
        let (lost, filled) = self.shared.tables.change(|tables| {
            let lost = tables.lose_newest(topic, messages);
            tables.interrupt_all(&BrokerError::Unreachable("the store was restored".into()));
            ((lost, tables.take_filled()), ())
        });
        filled.drain();
        lost
    }

    /// Removes a topic with its epochs without a trace, like a store without persistence that was
    /// restarted, and interrupts all nodes. For tests.
    pub fn lose_topic(&self, topic: &TopicName) {
        let filled = self.shared.tables.change(|tables| {
            let lost = tables.lose_topic(topic);
            tables.interrupt_all(&BrokerError::Unreachable("the store was restarted".into()));
            (tables.take_filled(), lost)
        });
        filled.drain();
    }

    /// Runs an operation on the tables, and delivers the events that it has caused.
    fn run<T>(
        &self,
        operation: impl FnOnce(&mut BrokerTables, Instant) -> Result<T, BrokerError>,
    ) -> Completion<T> {
        let Some(connection) = self.connection.get() else { return failed(BrokerError::Closed) };
        if connection.is_closed.load(Ordering::Acquire) {
            return failed(BrokerError::Closed);
        }
        let now = connection.clock.now();
        let (result, filled) = self.shared.tables.change(|tables| {
            let result = operation(tables, now);
            ((result, tables.take_filled()), ())
        });
        filled.drain();
        Completion::ready(result.map_err(Into::into))
    }
}

impl Broker for MemoryBroker {
    fn start(&self, start: BrokerStart) -> Result<()> {
        let outboxes = Arc::new(Outboxes::new(start.partitions, start.sink));
        let connection =
            Connection { outboxes: outboxes.clone(), clock: start.clock, is_closed: AtomicBool::new(false) };
        self.connection.set(connection).map_err(|_| BrokerError::InUse)?;
        let joined =
            self.shared.tables.change(|tables| (tables.connect(outboxes, start.partitions, start.seed), ()));
        Ok(joined?)
    }

    fn follow(&self, partition: Partition, on: bool) {
        let Some(connection) = self.connection.get() else { return };
        let outboxes = &connection.outboxes;
        // Under the lock, so that every later event is behind it.
        self.shared.tables.change(|_| (outboxes.follow(partition, on), ()));
        outboxes.drain(partition);
    }

    fn publish(&self, publication: Publication) -> Completion<Published> {
        if let Err(error) = publication.check() {
            return Completion::ready(Err(error));
        }
        self.run(|tables, now| tables.publish(publication, now))
    }

    fn notify(&self, notification: Notification) -> Result<()> {
        self.run(|tables, _| {
            let partition = tables.partition(&notification.topic);
            tables.send(partition, &BrokerEvent::Notified(notification));
            Ok(())
        })
        .wait()
    }

    fn read(&self, topic: &TopicName, range: ReadRange) -> Completion<History> {
        self.run(|tables, now| tables.read(topic, range, now))
    }

    fn tops(&self, partition: Partition, topics: Vec<TopicSeen>) -> Completion<PartitionTops> {
        self.run(|tables, now| tables.tops(partition, topics, now))
    }

    fn metadata_life(&self) -> Option<Duration> {
        Some(MIN_LIFE)
    }

    fn change(&self, update: MapUpdate) -> Completion<Changed> {
        self.run(|tables, now| tables.change(update, now))
    }

    fn snapshot(&self, topic: &TopicName, seen: Option<Position>) -> Completion<Snapshot> {
        self.run(|tables, now| tables.snapshot(topic, seen, now))
    }

    fn renew(&self, lease: NodeLease) -> Completion<()> {
        self.run(|tables, now| tables.renew(lease, now))
    }

    fn end_lost_leases(&self) -> Completion<Vec<NodeId>> {
        self.run(|tables, now| Ok(tables.end_lost_leases(now)))
    }

    fn end_lease(&self, node: &NodeId) -> Completion<()> {
        self.run(|tables, _| {
            tables.end_lease(node);
            Ok(())
        })
    }

    fn close(&self) -> Completion<()> {
        if let Some(connection) = self.connection.get() {
            connection.is_closed.store(true, Ordering::Release);
            self.shared.tables.change(|tables| ((), tables.disconnect(&connection.outboxes)));
        }
        Completion::ready(Ok(()))
    }
}

impl Clone for MemoryBroker {
    fn clone(&self) -> Self {
        MemoryBroker { shared: self.shared.clone(), connection: OnceLock::new() }
    }
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MemoryBroker {
    fn drop(&mut self) {
        self.close().detach();
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.tables.read(|tables| {
            f.debug_struct("MemoryBroker").field("topics", &tables.len()).finish_non_exhaustive()
        })
    }
}
