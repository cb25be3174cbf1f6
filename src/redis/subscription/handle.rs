//! `RedisSubscription`: the handle of a subscription.

use super::{event::Sink, subscription_lane::SubscriptionLane};
use crate::error::Result;
use bytes::Bytes;
use std::{fmt, sync::Arc};

/// A subscription to a channel of Redis, from
/// [`RedisClient::subscribe`](super::super::RedisClient::subscribe). It ends when this is dropped
/// or closed.
#[must_use = "dropping it ends the subscription"]
pub struct RedisSubscription {
    lane: Arc<SubscriptionLane>,
    channel: Bytes,
    id: u64,
}

impl RedisSubscription {
    /// # Errors
    /// Those of [`SubscriptionLane::join`].
    pub(in crate::redis) fn new(lane: Arc<SubscriptionLane>, channel: Bytes, sink: Sink) -> Result<Self> {
        let id = lane.join(&channel, sink)?;
        Ok(RedisSubscription { lane, channel, id })
    }

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
