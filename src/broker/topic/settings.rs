//! The settings of a topic.

use crate::broker::{
    follower::FollowerLimits,
    store::{HistoryLimits, Publication},
};
use crate::{error::Result, settings::check_range};
use std::time::Duration;

/// What publishing does while the broker cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenUnreachable {
    /// It fails, with [`BrokerError::Unreachable`](crate::broker::BrokerError::Unreachable).
    #[default]
    Refuse,
    /// Messages that were certainly not stored are passed to the members of this node, without a
    /// position. Other nodes never receive them, and no history has them.
    Local,
}

#[derive(Debug, Clone)]
pub(super) struct TopicSettings {
    pub(super) history: HistoryLimits,
    pub(super) id_window: Duration,
    pub(super) when_unreachable: WhenUnreachable,
    pub(super) max_members: usize,
    pub(super) max_joiners: usize,
    pub(super) max_recent: usize,
    pub(super) max_recent_bytes: usize,
}

impl Default for TopicSettings {
    fn default() -> Self {
        TopicSettings {
            history: HistoryLimits::new(),
            id_window: Publication::DEFAULT_WINDOW,
            when_unreachable: WhenUnreachable::Refuse,
            max_members: 1 << 20,
            max_joiners: 65_536,
            max_recent: 128,
            max_recent_bytes: 64 << 10,
        }
    }
}

impl TopicSettings {
    pub(super) fn check(&self) -> Result {
        self.history.check()?;
        let day = Duration::from_secs(24 * 60 * 60);
        check_range("id_window", self.id_window, Duration::from_secs(1)..=day, "1 s to 24 h")?;
        check_range("max_members", self.max_members, 1.., "1 or more")?;
        check_range("max_joiners", self.max_joiners, 1.., "1 or more")?;
        check_range("max_recent", self.max_recent, ..=65_536, "at most 65,536 messages")?;
        check_range("max_recent_bytes", self.max_recent_bytes, ..=64 << 20, "at most 64 MiB")
    }

    pub(super) fn follower(&self) -> FollowerLimits {
        FollowerLimits {
            ring_messages: self.max_recent,
            ring_bytes: self.max_recent_bytes,
            ahead_messages: 1024,
            ahead_bytes: 1 << 20,
            read_messages: 1000,
            read_bytes: 1 << 20,
        }
    }
}
