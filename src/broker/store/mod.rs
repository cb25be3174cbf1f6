//! The interface between nodes and the stores of topics.
//!
//! Only authors of a broker need this module.

mod broker;
mod epochs;
mod error;
mod event;
mod history;
mod history_limits;
mod lease;
mod leases;
mod map;
mod memory;
mod message_id;
mod partition;
mod position;
mod publication;
mod topic_name;
mod tops;

pub use broker::{Broker, BrokerSink, BrokerStart};
pub use epochs::{Epoch, Epochs};
pub use error::BrokerError;
pub use event::{BrokerEvent, StoredEvent, TopicChange};
pub use history::{History, ReadFrom, ReadRange, StoredMessage};
pub use history_limits::HistoryLimits;
pub use lease::{LeaseKind, NodeId, NodeLease};
#[cfg(feature = "broker-sqlite")]
pub(in crate::broker) use leases::NodeLeases;
pub use map::{Changed, EntryChange, MapChange, MapCondition, MapEntry, MapUpdate, Snapshot};
pub use memory::{MemoryBroker, MemoryBrokerBuilder};
pub use message_id::MessageId;
pub use partition::{Partition, Partitions, Sequence};
pub use position::Position;
pub use publication::{Notification, Publication, Published};
pub use topic_name::TopicName;
pub use tops::{PartitionTops, TopicSeen, TopicTop};
