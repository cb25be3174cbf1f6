//! `History`: messages that were read from a topic.

use super::{epochs::Epochs, position::Position};
use bytes::Bytes;

/// A message of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// The position of the message: its epoch and its offset.
    pub position: Position,
    /// The message.
    pub payload: Bytes,
}

impl StoredMessage {
    /// Creates a message.
    pub fn new(position: Position, payload: Bytes) -> Self {
        StoredMessage { position, payload }
    }
}

/// Where a read of messages begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadFrom {
    /// Behind an offset. The read is empty from the top on.
    After(u64),
    /// The last messages, at most this number.
    Last(u64),
}

/// A range of messages to read from a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRange {
    /// Where the read begins.
    pub from: ReadFrom,
    /// The highest position that the node has seen. `None` by default.
    pub seen: Option<Position>,
    /// The largest number of messages. 1000 by default.
    pub max_messages: u64,
    /// The largest number of bytes of their payloads; one message is always returned. 1 MiB by
    /// default. A broker may return fewer messages, but at least one if there is one.
    pub max_bytes: u64,
}

impl ReadRange {
    /// Creates a range with default limits.
    pub const fn new(from: ReadFrom) -> Self {
        ReadRange { from, seen: None, max_messages: 1000, max_bytes: 1 << 20 }
    }
}

/// Messages of a topic, with its state at the same moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// The epochs of the topic.
    pub epochs: Epochs,
    /// The offset of the newest message that was ever stored, or zero.
    pub top: u64,
    /// The offset of the oldest message that is kept, or `top + 1` if none is kept. Messages before
    /// the first offset of the oldest epoch do not count, because their epoch is unknown.
    pub oldest: u64,
    /// The messages, in the order of their offsets and without gaps. The first one is the oldest
    /// message that is kept and in the range. If the limits of the range are reached, more messages
    /// follow behind the last one.
    pub messages: Vec<StoredMessage>,
}

impl History {
    /// Creates a history.
    pub fn new(epochs: Epochs, top: u64, oldest: u64, messages: Vec<StoredMessage>) -> Self {
        History { epochs, top, oldest, messages }
    }
}
