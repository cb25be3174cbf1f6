//! `Broker`: where topics are stored, and how their events reach the nodes.

use super::{
    error::BrokerError,
    event::BrokerEvent,
    history::{History, ReadRange},
    lease::{NodeId, NodeLease},
    map::{Changed, MapUpdate, Snapshot},
    partition::{Partition, Partitions},
    position::Position,
    publication::{Notification, Publication, Published},
    topic_name::TopicName,
    tops::{PartitionTops, TopicSeen},
};
use crate::{clock::Clock, error::Result, sync::Completion};
use std::{fmt, sync::Arc, time::Duration};

/// A store of topics that several nodes share.
///
/// One value is the connection of one node. Operations may be called from any thread, do not block,
/// and complete on any thread. Payloads are bytes.
///
/// # Topics
///
/// - A topic has offsets from 1 without gaps, and [`Epochs`](super::Epochs). Every operation on a
///   topic without metadata begins its first epoch.
/// - `publish`, `read`, `tops`, `change` and `snapshot` may carry the highest position that the
///   node has seen. If the topic [was rewound](super::Epochs::was_rewound) behind it, the operation
///   begins a new epoch, atomically and before anything else. So a loss is recorded by the first
///   node that notices it.
/// - A store that can lose its newest messages also begins a new epoch with the first message after
///   each restart of the store. Publishers without members would not notice the loss.
/// - A topic has either messages or a map. The first operation that is for one kind only decides.
///   Later ones of the other kind fail with [`BrokerError::WrongKind`].
/// - The metadata of a topic (epochs, top, kind) is kept longer than its history.
///
/// # Partitions
///
/// - Each stored event (a message, a change of a map, a new epoch) increments the
///   [sequence](super::Sequence) of the partition, in one atomic step with the event.
/// - Followers receive the events of a partition in the order of their sequence, each at most once
///   between two interruptions. They may miss events. They find out by the next sequence, by
///   [`tops`](Broker::tops), or by [`BrokerEvent::Interrupted`].
///
/// # Errors
///
/// Operations fail with a [`BrokerError`] in [`Error::Other`](crate::Error::Other).
pub trait Broker: Send + Sync + 'static {
    /// Begins the work for a node. Called once, before everything else. Does not wait for a server:
    /// while it cannot be reached, operations fail with [`BrokerError::Unreachable`].
    ///
    /// Events go to the sink from any thread. Those of one partition are passed one after the other
    /// and in order. No lock is held that an operation of the broker needs, because the sink calls
    /// operations.
    ///
    /// # Errors
    ///
    /// [`BrokerError::InUse`] if the broker was started before. Other errors that are known
    /// without waiting.
    fn start(&self, start: BrokerStart) -> Result<()>;

    /// Starts or ends the delivery of the events of a partition. Idempotent.
    ///
    /// [`BrokerEvent::Following`] says that delivery is in place: events that are stored later are
    /// delivered. After an interruption the broker begins the delivery again by itself, and says so
    /// again.
    fn follow(&self, partition: Partition, on: bool);

    /// Stores a message, and completes once it is stored: durably, as far as the store promises it.
    ///
    /// Messages of one node to one topic are stored in the order of the calls. A message whose
    /// [`MessageId`](super::MessageId) was stored within the window is not stored again. If the
    /// position of the stored message is not valid any more, its id does not count.
    fn publish(&self, publication: Publication) -> Completion<Published>;

    /// Passes a message to all followers of the partition, also to this node. It is neither stored
    /// nor counted in the sequence. At most once.
    ///
    /// # Errors
    ///
    /// If the message was certainly not sent.
    fn notify(&self, notification: Notification) -> Result<()>;

    /// Reads stored messages in the order of their offsets. The answer is of one moment.
    fn read(&self, topic: &TopicName, range: ReadRange) -> Completion<History>;

    /// Returns the sequence of a partition, with the tops and epochs of topics in it, of one
    /// moment. The answer has the topics in the order of the question. At most
    /// [`TopicSeen::LIMIT`] topics.
    fn tops(&self, partition: Partition, topics: Vec<TopicSeen>) -> Completion<PartitionTops>;

    /// Returns how long the metadata of a topic without messages and entries is kept after the last
    /// operation on the topic. A node asks for each topic that it follows, with
    /// [`tops`](Broker::tops), at least three times in this time, if its interval for verifications
    /// is not longer. So a topic with readers stays. `None`, the default, if metadata is kept
    /// without such questions.
    fn metadata_life(&self) -> Option<Duration> {
        None
    }

    /// Changes entries of a map topic in one step, which takes one offset if any change was made.
    ///
    /// If the owner's lease has ended or was taken over, the update fails with
    /// [`BrokerError::LeaseEnded`], or the next [`end_lost_leases`](Broker::end_lost_leases)
    /// removes its entries.
    ///
    /// Fails with [`Error::Setting`](crate::Error::Setting) if the changes are too many or too
    /// large for one step. Then nothing is changed, and a node tries fewer at once.
    fn change(&self, update: MapUpdate) -> Completion<Changed>;

    /// Returns all entries of a map topic, of one moment.
    ///
    /// Fails with [`BrokerError::TooLarge`] if they do not fit into an answer. Then nodes read the
    /// map again only after a change.
    fn snapshot(&self, topic: &TopicName, seen: Option<Position>) -> Completion<Snapshot>;

    /// Begins or renews the lease of a node.
    ///
    /// [`LeaseKind`](super::LeaseKind) says what becomes of another incarnation of the same name.
    /// Fails with [`BrokerError::LeaseTaken`] if such an incarnation has a lease, and the request
    /// does not take it over. Fails with [`BrokerError::LeaseEnded`] if a lease to be renewed has
    /// ended, and no other incarnation has one.
    ///
    /// Once a lease has ended, a store may refuse entries of its incarnation, also if that
    /// incarnation begins another lease. So a node goes on with another incarnation.
    fn renew(&self, lease: NodeLease) -> Completion<()>;

    /// Ends the leases that were not renewed in time, or were taken over, and removes the entries
    /// of their nodes from all maps. The removals are events of the maps. Returns those nodes.
    ///
    /// All nodes call this from time to time.
    fn end_lost_leases(&self) -> Completion<Vec<NodeId>>;

    /// Ends the lease of a node, removes its entries like
    /// [`end_lost_leases`](Broker::end_lost_leases), and completes when that is done. Idempotent.
    fn end_lease(&self, node: &NodeId) -> Completion<()>;

    /// Ends the work for the node. Pending operations end with an error or their result, and then
    /// this completes. Later operations fail with [`BrokerError::Closed`].
    fn close(&self) -> Completion<()>;
}

/// For programs that choose the broker when they start: `Arc<dyn Broker>`.
impl<B: Broker + ?Sized> Broker for Arc<B> {
    fn start(&self, start: BrokerStart) -> Result<()> {
        (**self).start(start)
    }

    fn follow(&self, partition: Partition, on: bool) {
        (**self).follow(partition, on);
    }

    fn publish(&self, publication: Publication) -> Completion<Published> {
        (**self).publish(publication)
    }

    fn notify(&self, notification: Notification) -> Result<()> {
        (**self).notify(notification)
    }

    fn read(&self, topic: &TopicName, range: ReadRange) -> Completion<History> {
        (**self).read(topic, range)
    }

    fn tops(&self, partition: Partition, topics: Vec<TopicSeen>) -> Completion<PartitionTops> {
        (**self).tops(partition, topics)
    }

    fn metadata_life(&self) -> Option<Duration> {
        (**self).metadata_life()
    }

    fn change(&self, update: MapUpdate) -> Completion<Changed> {
        (**self).change(update)
    }

    fn snapshot(&self, topic: &TopicName, seen: Option<Position>) -> Completion<Snapshot> {
        (**self).snapshot(topic, seen)
    }

    fn renew(&self, lease: NodeLease) -> Completion<()> {
        (**self).renew(lease)
    }

    fn end_lost_leases(&self) -> Completion<Vec<NodeId>> {
        (**self).end_lost_leases()
    }

    fn end_lease(&self, node: &NodeId) -> Completion<()> {
        (**self).end_lease(node)
    }

    fn close(&self) -> Completion<()> {
        (**self).close()
    }
}

/// The receiver of a broker's events: the node.
pub trait BrokerSink: Send + Sync {
    /// Handles an event. Does not block.
    ///
    /// The node may end in this call. Then it closes and drops the broker in it.
    fn handle(&self, event: BrokerEvent);
}

/// Passed to [`Broker::start`].
#[derive(Clone)]
#[non_exhaustive]
pub struct BrokerStart {
    /// The number of partitions. All nodes of a store must have the same one; a broker refuses
    /// another ([`BrokerError::Partitions`]).
    pub partitions: Partitions,
    /// The receiver of events.
    pub sink: Arc<dyn BrokerSink>,
    /// The clock of the node's event loops, for leases, ages and windows. A store with a server
    /// uses the server's clock.
    pub clock: Arc<dyn Clock>,
    /// The seed for random numbers, such as the ids of epochs.
    pub seed: u64,
}

impl BrokerStart {
    /// Creates the argument of a start.
    pub fn new(partitions: Partitions, sink: Arc<dyn BrokerSink>, clock: Arc<dyn Clock>, seed: u64) -> Self {
        BrokerStart { partitions, sink, clock, seed }
    }
}

impl fmt::Debug for BrokerStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerStart").field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

/// Returns a completion that has failed.
pub(in crate::broker) fn failed<T>(error: BrokerError) -> Completion<T> {
    Completion::ready(Err(error.into()))
}
