//! The settings of a broker in memory.

use super::MemoryBroker;
use crate::error::{Error, Result};

/// Settings of a [`MemoryBroker`].
///
/// | setting | default | range | when it is reached |
/// |---|---|---|---|
/// | `max_topics` | 65,536 topics | 1 or more | topics without entries that were not used for a minute are removed with their history: first those without messages, then those that were not used for the longest time. If there are none: [`BrokerError::Full`](crate::broker::BrokerError::Full) |
/// | `max_bytes` | 256 MiB of messages of all topics | 1 or more | the oldest messages are removed |
/// | `max_message_ids` | 1,048,576 ids of all topics | 1 or more | the oldest ids are forgotten before their window ends |
#[derive(Debug, Clone)]
#[must_use]
pub struct MemoryBrokerBuilder(MemoryLimits);

/// The limits of all topics together.
#[derive(Debug, Clone)]
pub(super) struct MemoryLimits {
    pub(super) topics: usize,
    pub(super) bytes: u64,
    pub(super) message_ids: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits { topics: 65_536, bytes: 256 << 20, message_ids: 1 << 20 }
    }
}

impl MemoryBrokerBuilder {
    pub(super) fn new() -> Self {
        MemoryBrokerBuilder(MemoryLimits::default())
    }

    /// Sets the largest number of topics.
    pub fn max_topics(mut self, topics: usize) -> Self {
        self.0.topics = topics;
        self
    }

    /// Sets the largest number of bytes of all messages that are kept, with 64 bytes for each
    /// message in addition to its payload.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.0.bytes = bytes;
        self
    }

    /// Sets the largest number of message ids that are remembered.
    pub fn max_message_ids(mut self, ids: usize) -> Self {
        self.0.message_ids = ids;
        self
    }

    /// Creates the broker.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if a setting is out of its range.
    pub fn build(self) -> Result<MemoryBroker> {
        let MemoryLimits { topics, bytes, message_ids } = &self.0;
        for (setting, is_zero) in
            [("max_topics", *topics == 0), ("max_bytes", *bytes == 0), ("max_message_ids", *message_ids == 0)]
        {
            if is_zero {
                return Err(Error::setting(setting, 0, "1 or more"));
            }
        }
        Ok(MemoryBroker::with(self.0))
    }
}
