//! `Followed`: the subscriptions to the channels of partitions.

use super::{script_calls::ScriptCalls, wire_event};
use crate::{
    broker::store::{BrokerError, BrokerEvent, Partition},
    machine::Mutex,
    redis::{RedisSubscription, SubscriptionEvent},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The followed partitions. `None` if the subscription could not be made.
#[derive(Default)]
pub(super) struct Followed(Mutex<BTreeMap<Partition, Option<FollowedChannel>>>);

struct FollowedChannel {
    /// Ends when it is dropped.
    _subscription: RedisSubscription,
    /// Whether the server has refused the subscription.
    is_refused: Arc<AtomicBool>,
}

impl Followed {
    pub(super) fn follow(&self, operations: &Arc<ScriptCalls>, partition: Partition, on: bool) {
        let mut followed = self.0.lock();
        if !on {
            let ended = followed.remove(&partition);
            drop(followed);
            // Dropping it sends mail.
            return drop(ended);
        }
        if followed.contains_key(&partition) || partition.get() >= operations.start.partitions.get() {
            return;
        }
        let (channel, failure) = subscribe(operations, partition)
            .map_or_else(|error| (None, Some(error)), |channel| (Some(channel), None));
        followed.insert(partition, channel);
        drop(followed);
        if let Some(error) = failure {
            operations.start.sink.handle(BrokerEvent::Interrupted(partition, error));
        }
    }

    /// Subscribes again to the channels whose subscriptions could not be made, or were refused.
    pub(super) fn retry(&self, operations: &Arc<ScriptCalls>) {
        let mut ended = Vec::new();
        for (partition, channel) in self.0.lock().iter_mut() {
            let is_broken = |channel: &FollowedChannel| channel.is_refused.load(Ordering::Acquire);
            if channel.as_ref().is_none_or(is_broken)
                && let Ok(again) = subscribe(operations, *partition)
            {
                ended.extend(channel.replace(again));
            }
        }
        drop(ended);
    }

    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}

/// Subscribes to the channel of a partition.
fn subscribe(operations: &Arc<ScriptCalls>, partition: Partition) -> Result<FollowedChannel, BrokerError> {
    let channel = operations.keys.partition(partition.get()).channel();
    let (sink, weak) = (operations.start.sink.clone(), Arc::downgrade(operations));
    let is_refused = Arc::new(AtomicBool::new(false));
    let (refused, is_warned) = (is_refused.clone(), AtomicBool::new(false));
    let handle = move |event| match event {
        SubscriptionEvent::Subscribed => {
            if let Some(operations) = weak.upgrade() {
                operations.server(partition).check_new_process();
            }
            sink.handle(BrokerEvent::Following(partition));
        }
        SubscriptionEvent::Message(message) => match wire_event::parse(partition, message) {
            Some(event) => sink.handle(event),
            // Logged once: their number is not limited.
            None if is_warned.swap(true, Ordering::Relaxed) => {}
            None => log::warn!("a message on the channel of the partition {partition} is no event"),
        },
        SubscriptionEvent::Lost(cause) => {
            let error = BrokerError::Unreachable(cause.to_string().into());
            sink.handle(BrokerEvent::Interrupted(partition, error));
        }
        SubscriptionEvent::Refused(cause) => {
            refused.store(true, Ordering::Release);
            let error = BrokerError::Refused(cause.to_string().into());
            sink.handle(BrokerEvent::Interrupted(partition, error));
        }
        SubscriptionEvent::Ended => {
            sink.handle(BrokerEvent::Interrupted(partition, BrokerError::Closed));
        }
    };
    let subscribed = operations.server(partition).client.subscribe(channel, handle);
    let subscription = subscribed.map_err(|error| super::errors::broker_error(&error))?;
    Ok(FollowedChannel { _subscription: subscription, is_refused })
}
