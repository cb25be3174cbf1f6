//! `MemoryBroker`.

use crate::{
    conformance::{self, Connection, Store},
    members::Numbered,
    support::{
        loops::{advance, manual_group, the_loop},
        wait::{done, wait_until},
    },
};
use bytes::Bytes;
use netwheel::{
    broker::{
        Broker, BrokerError, MemoryBroker, TopicName, Topics,
        store::{BrokerEvent, MapChange, MapUpdate, Publication, ReadFrom},
    },
    testing::ManualClock,
    time::Clock,
};
use std::{sync::Arc, time::Duration};

struct Memory {
    broker: MemoryBroker,
    clock: ManualClock,
}

impl Memory {
    fn new(broker: MemoryBroker) -> Self {
        Memory { broker, clock: ManualClock::new() }
    }
}

impl Store for Memory {
    fn connect(&self) -> Arc<dyn Broker> {
        Arc::new(self.broker.clone())
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

#[test]
fn it_conforms() {
    conformance::check(|| Memory::new(MemoryBroker::new()));
}

#[test]
fn topics_are_limited_and_unused_ones_make_room() {
    let store = Memory::new(MemoryBroker::builder().max_topics(2).build().unwrap());
    let node = Connection::new(&store);
    let publish = |name: &str| {
        let publication = Publication::new(TopicName::new(name).unwrap(), "x".into());
        done(node.broker.publish(publication))
    };
    assert!(publish("a").is_ok() && publish("b").is_ok());
    let full = publish("c").unwrap_err();
    assert!(matches!(BrokerError::of(&full), Some(BrokerError::Full(_))), "{full}");
    store.pass(Duration::from_secs(49 * 3600));
    assert!(publish("a").is_ok(), "it is used again");
    assert_eq!(publish("c").unwrap().position.offset, 1, "b has made room");
    assert_eq!(publish("a").unwrap().position.offset, 3);
}

/// A client that says something in one new topic after another must not keep all others out.
#[test]
fn the_topics_that_were_not_used_for_the_longest_time_make_room() {
    let store = Memory::new(MemoryBroker::builder().max_topics(4).build().unwrap());
    let node = Connection::new(&store);
    let name = |name: &str| TopicName::new(name).unwrap();
    let publish = |topic: &str| done(node.broker.publish(Publication::new(name(topic), "x".into())));
    let map = MapUpdate::new(name("map"), vec![MapChange::set("ann", "here")]);
    done(node.broker.change(map)).unwrap();
    for topic in ["a", "b", "c"] {
        publish(topic).unwrap();
    }
    store.pass(Duration::from_secs(30));
    publish("a").unwrap();
    store.pass(Duration::from_secs(29));
    assert!(publish("d").is_err(), "all were used within a minute");
    store.pass(Duration::from_secs(1));
    assert_eq!(publish("d").unwrap().position.offset, 1, "b has made room");
    store.pass(Duration::from_secs(60));
    assert_eq!(publish("b").unwrap().position.offset, 1, "c has made room");
    assert_eq!(publish("a").unwrap().position.offset, 3);
    assert_eq!(done(node.broker.snapshot(&name("map"), None)).unwrap().entries.len(), 1);
}

#[test]
fn topics_without_content_make_room_soon() {
    let store = Memory::new(MemoryBroker::builder().max_topics(4).build().unwrap());
    let node = Connection::new(&store);
    let [said, asked, read, left, next] =
        ["said", "asked", "read", "left", "next"].map(|name| TopicName::new(name).unwrap());
    let publish = |topic: &TopicName| done(node.broker.publish(Publication::new(topic.clone(), "x".into())));
    assert!(publish(&said).is_ok());
    assert_eq!(done(node.broker.snapshot(&asked, None)).unwrap().entries, []);
    assert!(node.read(&read, ReadFrom::After(0)).messages.is_empty());
    for change in [MapChange::set("ann", "here"), MapChange::remove("ann")] {
        done(node.broker.change(MapUpdate::new(left.clone(), vec![change]))).unwrap();
    }
    assert!(publish(&next).is_err());
    store.pass(Duration::from_secs(59));
    assert!(publish(&next).is_err());
    store.pass(Duration::from_secs(1));
    assert_eq!(publish(&next).unwrap().position.offset, 1);
    assert_eq!(publish(&said).unwrap().position.offset, 2, "a topic with a message has stayed");
}

/// The store would not know the positions of its members.
#[test]
fn a_followed_topic_without_content_makes_no_room() {
    let (group, clock) = manual_group();
    let store = MemoryBroker::builder().max_topics(1).build().unwrap();
    let topics = Topics::builder(&group, store).build().unwrap();
    let open = |name: &str| topics.topic(name, Numbered).open().unwrap();
    let _watch = open("lobby").watch();
    for _ in 0..12 {
        let before = topics.metrics().verifications;
        advance(the_loop(&group), &clock, Duration::from_secs(10));
        wait_until("the partition is verified", || topics.metrics().verifications > before);
    }
    let full = done(open("next").publish(Bytes::from("x"))).unwrap_err();
    assert!(matches!(BrokerError::of(&full), Some(BrokerError::Full(_))), "{full}");
}

#[test]
fn the_messages_of_all_topics_are_limited() {
    let store = Memory::new(MemoryBroker::builder().max_bytes(10_000).build().unwrap());
    let node = Connection::new(&store);
    let topics: Vec<TopicName> = (0..5).map(|n| TopicName::new(n.to_string()).unwrap()).collect();
    for n in 0..1000 {
        let topic = topics[n % topics.len()].clone();
        done(node.broker.publish(Publication::new(topic, vec![b'x'; 36].into()))).unwrap();
    }
    let kept: Vec<usize> =
        topics.iter().map(|topic| node.read(topic, ReadFrom::After(0)).messages.len()).collect();
    assert_eq!(kept, [20; 5], "100 bytes each, the oldest are removed");
}

#[test]
fn a_slow_follower_is_interrupted() {
    let store = Memory::new(MemoryBroker::new());
    let (node, lobby) = (Connection::new(&store), TopicName::new("lobby").unwrap());
    node.follow(&lobby);
    let partition = node.partition(&lobby);
    store.broker.lose_newest(&lobby, 1);
    let events = node.events.all();
    assert!(
        matches!(events[..], [
        BrokerEvent::Following(_),
        BrokerEvent::Interrupted(at, BrokerError::Unreachable(_)),
        BrokerEvent::Following(again),
    ] if at == partition && again == partition),
        "{events:?}"
    );
}

#[test]
fn settings_are_checked() {
    assert!(MemoryBroker::builder().max_topics(0).build().is_err());
    assert!(MemoryBroker::builder().max_bytes(0).build().is_err());
    assert!(MemoryBroker::builder().max_message_ids(0).build().is_err());
}
