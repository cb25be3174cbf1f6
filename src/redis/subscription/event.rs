//! `SubscriptionEvent`: the events of a sink.

use crate::error::Error;
use bytes::Bytes;
use std::sync::Arc;

/// An event of a subscription, for the sink of
/// [`RedisClient::subscribe`](super::super::RedisClient::subscribe).
///
/// `Subscribed` is first. After `Lost`, messages are missed until the next `Subscribed`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SubscriptionEvent {
    /// The subscription is in place: the messages that are published from now on arrive.
    Subscribed,
    /// A message. It shares the memory of the read buffer: copy it to keep it for a long time.
    Message(Bytes),
    /// The connection was lost, for this reason. The client reconnects and subscribes again.
    Lost(Error),
    /// The server refuses the subscription with this
    /// [`RedisError::Reply`](super::super::RedisError::Reply). The client tries again after the
    /// next reconnect.
    Refused(Error),
    /// The client is closed. Nothing follows.
    Ended,
}

/// The function of the program that gets the events.
pub(in crate::redis) type Sink = Arc<dyn Fn(SubscriptionEvent) + Send + Sync>;
