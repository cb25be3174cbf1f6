//! `Router`: passes the events of a broker to the topics of a node.

use super::TopicNode;
use crate::broker::store::{BrokerEvent, BrokerSink, StoredEvent};
use crate::error::caught;
use std::sync::Weak;

pub(super) struct Router(Weak<TopicNode>);

impl Router {
    pub(super) fn new(node: Weak<TopicNode>) -> Self {
        Router(node)
    }
}

impl BrokerSink for Router {
    fn handle(&self, event: BrokerEvent) {
        // Code of the program runs in it. A panic must not reach the broker.
        if let Some(message) = caught(|| self.pass(event)) {
            log::error!("an event of the broker was not passed on: {message}");
        }
    }
}

impl Router {
    fn pass(&self, event: BrokerEvent) {
        let Some(node) = self.0.upgrade() else { return };
        match event {
            BrokerEvent::Stored(StoredEvent { partition, sequence, topic, change }) => {
                let Some(part) = node.part(partition) else { return };
                let (topic, is_gap) = part.event(sequence, &topic);
                node.metrics.gaps.add_shared(u64::from(is_gap));
                if let Some(topic) = topic {
                    topic.stored(change);
                }
                if is_gap {
                    node.verify(partition);
                }
            }
            BrokerEvent::Notified(notification) => {
                let part = node.part(node.partition(&notification.topic));
                if let Some(topic) = part.and_then(|part| part.find(&notification.topic)) {
                    topic.notified(notification);
                }
            }
            BrokerEvent::Following(partition) => {
                let Some(part) = node.part(partition) else { return };
                if part.following() {
                    part.topics().into_iter().for_each(|topic| topic.resumed());
                }
                node.verify(partition);
            }
            BrokerEvent::Interrupted(partition, error) => {
                let Some(part) = node.part(partition) else { return };
                if part.interrupted() {
                    log::warn!("the events of partition {partition} are interrupted: {error}");
                    node.metrics.interruptions.add_shared(1);
                    part.topics().into_iter().for_each(|topic| topic.interrupted(&error));
                }
            }
        }
    }
}
