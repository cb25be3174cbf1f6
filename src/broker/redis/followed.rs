//! `Followed`: the subscriptions to the channels of partitions.

use super::{script_calls::ScriptCalls, wire_event};
use crate::{
    broker::store::{BrokerError, BrokerEvent, Partition},
    redis::{RedisSubscription, SubscriptionEvent},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

#[derive(Default)]
pub(super) struct Followed(Mutex<BTreeMap<Partition, RedisSubscription>>);

impl Followed {
    pub(super) fn follow(&self, operations: &Arc<ScriptCalls>, partition: Partition, on: bool) {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !on {
            let ended = followed.remove(&partition);
            drop(followed);
            // Dropping it sends mail.
            return drop(ended);
        }
        if followed.contains_key(&partition) || partition.get() >= operations.start.partitions.get() {
            return;
        }
        let channel = operations.keys.partition(partition.get()).channel();
        let (sink, weak) = (operations.start.sink.clone(), Arc::downgrade(operations));
        let handle = move |event| match event {
            SubscriptionEvent::Subscribed => {
                if let Some(operations) = weak.upgrade() {
                    operations.server(partition).check_new_process();
                }
                sink.handle(BrokerEvent::Following(partition));
            }
            SubscriptionEvent::Message(message) => match wire_event::parse(partition, message) {
                Some(event) => sink.handle(event),
                None => log::warn!("a message on the channel of the partition {partition} is no event"),
            },
            SubscriptionEvent::Lost(cause) => {
                let error = BrokerError::Unreachable(cause.to_string().into());
                sink.handle(BrokerEvent::Interrupted(partition, error));
            }
            SubscriptionEvent::Refused(cause) => {
                let error = BrokerError::Refused(cause.to_string().into());
                sink.handle(BrokerEvent::Interrupted(partition, error));
            }
            SubscriptionEvent::Ended => {
                sink.handle(BrokerEvent::Interrupted(partition, BrokerError::Closed));
            }
        };
        match operations.server(partition).client.subscribe(channel, handle) {
            Ok(subscription) => {
                followed.insert(partition, subscription);
            }
            Err(error) => {
                drop(followed);
                let error = super::errors::broker_error(&error);
                operations.start.sink.handle(BrokerEvent::Interrupted(partition, error));
            }
        }
    }

    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(all);
    }
}
