//! `BrokerEvent`: the events of a broker for a node.

use super::{
    error::BrokerError,
    history::StoredMessage,
    map::EntryChange,
    partition::{Partition, Sequence},
    position::Position,
    publication::Notification,
    topic_name::TopicName,
};

/// An event of a broker.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum BrokerEvent {
    /// Something was stored in a followed partition.
    Stored(StoredEvent),
    /// A message that is not stored.
    Notified(Notification),
    /// Events of the partition that are stored from now on are delivered. Events that were stored
    /// before may be missing.
    Following(Partition),
    /// Events of the partition may be missing from now on, until the next
    /// [`Following`](BrokerEvent::Following). For example, the connection to the server has ended.
    Interrupted(Partition, BrokerError),
}

/// A stored event of a partition.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoredEvent {
    /// The partition.
    pub partition: Partition,
    /// The number of the event in the partition.
    pub sequence: Sequence,
    /// The topic that has changed.
    pub topic: TopicName,
    /// What was stored.
    pub change: TopicChange,
}

impl StoredEvent {
    /// Creates an event.
    pub fn new(partition: Partition, sequence: Sequence, topic: TopicName, change: TopicChange) -> Self {
        StoredEvent { partition, sequence, topic, change }
    }
}

/// A stored change of a topic.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TopicChange {
    /// A message. If it is the first one of an epoch, no other event says that the epoch began.
    Message(StoredMessage),
    /// An epoch began without a message. The position is the one behind the top, in the new epoch.
    EpochBegan(Position),
    /// Entries of a map have changed. The position is that of the change.
    Entries(Position, Vec<EntryChange>),
}
