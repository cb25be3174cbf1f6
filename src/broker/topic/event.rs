//! `TopicEvent`: the events of a topic on a node.

use crate::broker::{
    follower::Missed,
    store::{BrokerError, Position},
};

/// An event of a topic on this node. See [`TopicBuilder::on_event`](super::TopicBuilder::on_event).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TopicEvent {
    /// Members will not receive some messages. They were sent the message of
    /// [`TopicFormat::missed`](super::TopicFormat::missed), if it returns one.
    Missed(Missed),
    /// The store has begun an epoch, and members have lost nothing by it. The position is the one
    /// before the first message of the epoch.
    EpochChanged(Position),
    /// The broker cannot be reached. Members receive nothing but local messages
    /// ([`WhenUnreachable::Local`](super::WhenUnreachable::Local)).
    Interrupted(BrokerError),
    /// The broker is reached again. What the members have missed is read and delivered.
    Resumed,
}

/// A callback for the events of a topic.
pub(super) type OnEvent = Box<dyn Fn(TopicEvent) + Send + Sync>;
