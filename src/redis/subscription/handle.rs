//! `RedisSubscription`: the handle of a subscription.

use super::subscription_lane::SubscriptionLane;
use bytes::Bytes;
use std::{fmt, sync::Arc};

/// A subscription to a channel of Redis, from
/// [`RedisClient::subscribe`](super::super::RedisClient::subscribe). It ends when this is dropped or
/// closed.
#[must_use = "dropping it ends the subscription"]
pub struct RedisSubscription {
    pub(super) lane: Arc<SubscriptionLane>,
    pub(super) channel: Bytes,
    pub(super) id: u64,
}

impl RedisSubscription {
    /// Returns the name of the channel.
    pub fn channel(&self) -> &Bytes {
        &self.channel
    }

    /// Ends the subscription, as dropping it does. Thread-safe. A call of the sink that runs on its
    /// loop may still be running afterwards.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for RedisSubscription {
    fn drop(&mut self) {
        self.lane.leave(&self.channel, self.id);
    }
}

impl fmt::Debug for RedisSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSubscription").field("channel", &self.channel).finish_non_exhaustive()
    }
}
