//! A connection that records its events.

use super::Store;
use crate::support::{journal::Journal, wait::done};
use netwheel::{
    Result,
    broker::{
        Broker, Position, TopicName,
        store::{
            BrokerEvent, BrokerSink, BrokerStart, History, Partition, PartitionTops, Publication, Published,
            ReadFrom, ReadRange, StoredEvent, StoredMessage, TopicChange, TopicSeen,
        },
    },
};
use std::sync::Arc;

/// A sink that records all events.
#[derive(Clone)]
pub(crate) struct Recorder(pub(crate) Journal<BrokerEvent>);

impl BrokerSink for Recorder {
    fn handle(&self, event: BrokerEvent) {
        self.0.push(event);
    }
}

/// A started connection of a node.
pub(crate) struct Connection {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) events: Journal<BrokerEvent>,
    partitions: netwheel::broker::store::Partitions,
}

impl Connection {
    pub(crate) fn new(store: &dyn Store) -> Self {
        let (broker, events) = (store.connect(), Journal::new());
        let sink = Arc::new(Recorder(events.clone()));
        broker
            .start(BrokerStart::new(store.partitions(), sink, store.clock(), 7))
            .expect("the broker starts");
        Connection { broker, events, partitions: store.partitions() }
    }

    pub(crate) fn partition(&self, topic: &TopicName) -> Partition {
        self.partitions.of(topic)
    }

    /// Follows the partition of a topic, and waits until that is in place.
    pub(crate) fn follow(&self, topic: &TopicName) {
        let partition = self.partition(topic);
        self.broker.follow(partition, true);
        self.events.wait_until("it follows", |events| {
            events.iter().any(|event| matches!(event, BrokerEvent::Following(at) if *at == partition))
        });
    }

    pub(crate) fn publish(&self, topic: &TopicName, payload: &'static str) -> Published {
        done(self.broker.publish(Publication::new(topic.clone(), payload.into()))).expect("it is stored")
    }

    pub(crate) fn publish_all(&self, topic: &TopicName, payloads: &[&'static str]) {
        for payload in payloads {
            self.publish(topic, payload);
        }
    }

    pub(crate) fn publish_seen(&self, topic: &TopicName, payload: &'static str, seen: Position) -> Position {
        let mut publication = Publication::new(topic.clone(), payload.into());
        publication.seen = Some(seen);
        done(self.broker.publish(publication)).expect("it is stored").position
    }

    pub(crate) fn read(&self, topic: &TopicName, from: ReadFrom) -> History {
        done(self.broker.read(topic, ReadRange::new(from))).expect("it is read")
    }

    pub(crate) fn read_all(&self, topic: &TopicName) -> Vec<StoredMessage> {
        self.read(topic, ReadFrom::After(0)).messages
    }

    pub(crate) fn tops(&self, topic: &TopicName, seen: Option<Position>) -> Result<PartitionTops> {
        done(self.broker.tops(self.partition(topic), vec![TopicSeen::new(topic.clone(), seen)]))
    }

    /// Returns the stored events of a topic, once there are `number` of them.
    pub(crate) fn stored(&self, topic: &TopicName, number: usize) -> Vec<StoredEvent> {
        self.events.wait_until("the events arrive", |events| stored(events, topic).len() >= number);
        stored(&self.events.all(), topic)
    }

    /// Returns the messages of a topic, once there are `number` of them.
    pub(crate) fn messages(&self, topic: &TopicName, number: usize) -> Vec<StoredMessage> {
        let message = |event: StoredEvent| match event.change {
            TopicChange::Message(message) => Some(message),
            _ => None,
        };
        self.stored(topic, number).into_iter().filter_map(message).collect()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.broker.close().detach();
    }
}

/// A store may also tell that a topic has begun, because it cannot know whether it had the topic
/// before. That is left out here.
fn stored(events: &[BrokerEvent], topic: &TopicName) -> Vec<StoredEvent> {
    let is_begin = |change: &TopicChange| matches!(change, TopicChange::EpochBegan(at) if at.offset == 0);
    let of_topic = |event: &BrokerEvent| match event {
        BrokerEvent::Stored(event) if event.topic == *topic && !is_begin(&event.change) => {
            Some(event.clone())
        }
        _ => None,
    };
    events.iter().filter_map(of_topic).collect()
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("a name")
}

pub(crate) fn texts(messages: &[StoredMessage]) -> Vec<&str> {
    messages.iter().map(|message| std::str::from_utf8(&message.payload).expect("a text")).collect()
}

pub(crate) fn offsets(messages: &[StoredMessage]) -> Vec<u64> {
    messages.iter().map(|message| message.position.offset).collect()
}
