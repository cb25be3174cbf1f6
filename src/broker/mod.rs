//! Topics that span nodes: messages and maps that several programs share, on an existing engine.
//!
//! A [`Broker`] stores the messages of topics and passes them on to all nodes. [`MemoryBroker`] is
//! the one of a single process, and of tests with several nodes.
//!
//! # Positions
//!
//! The messages of a topic have the offsets 1, 2, 3, and so on. A [`Position`] is an offset with
//! the epoch in which it was given. Epochs are terms, like the leader epochs of Kafka (KIP-101): a
//! topic begins a new one whenever its store may have lost its newest messages. [`store::Epochs`]
//! states which positions are still valid.

#[cfg(any(feature = "broker-redis", feature = "broker-sqlite"))]
mod epochs_text;
mod follower;
mod map;
mod node;
mod pending_limit;
#[cfg(feature = "broker-redis")]
mod redis;
mod retry_delay;
#[cfg(feature = "broker-sqlite")]
mod sqlite;
pub mod store;
mod topic;
mod topics;

pub use follower::{Joined, Missed, MissedCause};
pub use map::{MapBuilder, MapEvent, MapTopic};
pub use node::{BrokerMetrics, LeaseEvent};
#[cfg(feature = "broker-redis")]
pub use redis::RedisBroker;
#[cfg(all(feature = "broker-redis", feature = "simulation"))]
pub(crate) use redis::scripts;
#[cfg(feature = "broker-sqlite")]
pub use sqlite::SqliteBroker;
pub use store::{
    Broker, BrokerError, Changed, HistoryLimits, MapChange, MapCondition, MapEntry, MemoryBroker,
    MemoryBrokerBuilder, MessageId, NodeId, Position, TopicName,
};
#[cfg(feature = "json")]
pub use topic::JsonFormat;
pub use topic::{
    NewMessage, Receipt, Subscription, Topic, TopicBuilder, TopicEvent, TopicFormat, TopicWatch,
    WhenUnreachable,
};
pub use topics::{Topics, TopicsBuilder};
