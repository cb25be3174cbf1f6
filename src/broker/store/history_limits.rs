//! `HistoryLimits`: how much of a topic is kept.

use crate::{error::Result, settings::check_range};
use std::time::Duration;

/// How much of the messages of a topic is kept. Older messages are removed until all limits hold,
/// also the newest one if it alone exceeds a limit. Offsets go on in any case.
///
/// | limit | default | range |
/// |---|---|---|
/// | `messages` | 1000 | 0 to 1,000,000; 0 keeps none |
/// | `bytes` | 1 MiB of payloads | 0 to 1 GiB |
/// | `age` | 24 h | 1 s to 1 year |
///
/// Messages beyond the age are removed with the next message, or together when the newest has
/// reached the age. Until then a read may return them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct HistoryLimits {
    pub(in crate::broker) messages: u64,
    pub(in crate::broker) bytes: u64,
    pub(in crate::broker) age: Duration,
}

impl HistoryLimits {
    /// Creates the default limits.
    pub const fn new() -> Self {
        HistoryLimits { messages: 1000, bytes: 1 << 20, age: Duration::from_secs(24 * 60 * 60) }
    }

    /// Sets the largest number of messages.
    pub const fn messages(mut self, messages: u64) -> Self {
        self.messages = messages;
        self
    }

    /// Sets the largest number of bytes of all payloads.
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the greatest age of a message.
    pub const fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Returns the largest number of messages.
    pub const fn max_messages(&self) -> u64 {
        self.messages
    }

    /// Returns the largest number of bytes.
    pub const fn max_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the greatest age.
    pub const fn max_age(&self) -> Duration {
        self.age
    }

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) for the first limit that is out of its range.
    pub fn check(&self) -> Result<()> {
        check_range("history messages", self.messages, ..=1_000_000, "at most 1,000,000")?;
        check_range("history bytes", self.bytes, ..=1 << 30, "at most 1 GiB")?;
        let year = Duration::from_secs(366 * 24 * 60 * 60);
        check_range("history age", self.age, Duration::from_secs(1)..=year, "1 s to 1 year")
    }
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked() {
        let limits = HistoryLimits::new();
        assert!(limits.check().is_ok() && limits.messages(0).bytes(0).check().is_ok());
        assert!(limits.messages(1_000_001).check().is_err());
        assert!(limits.bytes((1 << 30) + 1).check().is_err());
        assert!(limits.age(Duration::from_millis(999)).check().is_err());
        assert!(limits.age(Duration::MAX).check().is_err());
    }
}
