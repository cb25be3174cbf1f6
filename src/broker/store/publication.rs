//! `Publication`: a message to store. `Notification`: a message that is not stored.

use super::{
    history_limits::HistoryLimits, message_id::MessageId, position::Position, topic_name::TopicName,
};
use crate::{error::Result, settings::check_range};
use bytes::Bytes;
use std::time::Duration;

/// A message to store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Publication {
    /// The topic.
    pub topic: TopicName,
    /// The message.
    pub payload: Bytes,
    /// The highest position that the node has seen. `None` by default.
    pub seen: Option<Position>,
    /// The id by which a repetition is recognised. `None` by default.
    pub id: Option<MessageId>,
    /// How long the id is remembered. [`DEFAULT_WINDOW`](Publication::DEFAULT_WINDOW) by default,
    /// 1 s to 24 h.
    pub window: Duration,
    /// How much of the topic is kept from now on.
    pub limits: HistoryLimits,
}

impl Publication {
    /// How long the id of a message is remembered, unless set otherwise: 10 minutes.
    pub const DEFAULT_WINDOW: Duration = Duration::from_secs(600);

    /// The longest window.
    pub(in crate::broker) const LONGEST_WINDOW: Duration = Duration::from_secs(24 * 3600);

    /// Creates a publication with default settings.
    pub fn new(topic: TopicName, payload: Bytes) -> Self {
        let limits = HistoryLimits::new();
        Publication { topic, payload, seen: None, id: None, window: Self::DEFAULT_WINDOW, limits }
    }

    /// Checks the ranges of the window and of the limits.
    pub(in crate::broker) fn check(&self) -> Result<()> {
        let range = Duration::from_secs(1)..=Self::LONGEST_WINDOW;
        check_range("window", self.window, range, "1 s to 24 h")?;
        self.limits.check()
    }
}

/// The result of a stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The position of the message. For a repetition, that of the first message with the id.
    pub position: Position,
    /// Whether a message with the same id was stored before, so that this one was not.
    pub is_duplicate: bool,
}

impl Published {
    /// Creates the result of a new message.
    pub const fn new(position: Position) -> Self {
        Published { position, is_duplicate: false }
    }

    /// Creates the result of a repetition.
    pub const fn duplicate(position: Position) -> Self {
        Published { position, is_duplicate: true }
    }
}

/// A message that is passed to all nodes, and not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notification {
    /// The topic.
    pub topic: TopicName,
    /// With a key, the message replaces the one with the same key that waits for a member. `None`
    /// by default.
    pub key: Option<u64>,
    /// The message.
    pub payload: Bytes,
}

impl Notification {
    /// Creates a notification without a key.
    pub fn new(topic: TopicName, payload: Bytes) -> Self {
        Notification { topic, key: None, payload }
    }
}
