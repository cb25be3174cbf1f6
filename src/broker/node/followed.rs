//! `FollowedTopic`: a topic without the type of its messages.

use crate::broker::store::{BrokerError, Notification, Position, TopicChange, TopicName, TopicTop};
use std::{any::Any, sync::Arc};

/// A topic of this node.
pub(in crate::broker) trait FollowedTopic: Send + Sync {
    fn name(&self) -> &TopicName;

    /// Something was stored in the topic.
    fn stored(self: Arc<Self>, change: TopicChange);

    fn notified(self: Arc<Self>, notification: Notification);

    /// Returns the position up to which members have been served.
    fn seen(&self) -> Option<Position>;

    /// The topic was verified with the result of [`seen`](FollowedTopic::seen).
    fn verified(self: Arc<Self>, seen: Option<Position>, top: TopicTop);

    /// Events may be missing until [`resumed`](FollowedTopic::resumed).
    fn interrupted(self: Arc<Self>, error: &BrokerError);

    fn resumed(self: Arc<Self>);

    /// Reads again after an error.
    fn retry(self: Arc<Self>);

    /// The node has begun a lease, or has lost it.
    fn lease_changed(self: Arc<Self>) {}

    /// Called once per interval. Forgets the messages in memory if there was none for some time.
    fn forget_old_messages(&self);

    /// Called once per interval. If the topic has been without members for some time, takes its
    /// messages and returns them, to be dropped without a lock.
    fn rest(&self) -> Option<Box<dyn Any + Send>>;

    /// Fails everything that waits.
    fn close(self: Arc<Self>);

    /// For the handle, which knows the type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}
