//! The settings of nodes and topics.

use crate::{
    members::{Member, Nodes, Numbered},
    support::{loops::one_loop, wait::done},
};
use bytes::Bytes;
use netwheel::{
    Error, Result,
    broker::{BrokerError, HistoryLimits, MemoryBroker, Position, TopicFormat, Topics, TopicsBuilder},
    error::Resource,
};
use std::time::Duration;

struct Texts;

impl TopicFormat<String> for Texts {
    fn encode(&self, message: &String) -> Result<Bytes> {
        Ok(message.clone().into())
    }

    fn decode(&self, payload: Bytes, _: Option<Position>) -> Result<String> {
        Ok(String::from_utf8_lossy(&payload).into())
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let group = one_loop();
    let build = |set: fn(TopicsBuilder) -> TopicsBuilder| {
        set(Topics::builder(&group, MemoryBroker::new())).build().map(|_| ())
    };
    let settings: [fn(TopicsBuilder) -> TopicsBuilder; 9] = [
        |topics| topics.node("a b"),
        |topics| topics.partitions(0),
        |topics| topics.partitions(48),
        |topics| topics.max_topics(0),
        |topics| topics.max_pending(0),
        |topics| topics.max_payload(0),
        |topics| topics.verify_interval(Duration::ZERO),
        |topics| topics.lease(Duration::from_millis(999)),
        |topics| topics.lease(Duration::MAX),
    ];
    for (number, set) in settings.into_iter().enumerate() {
        assert!(matches!(build(set), Err(Error::Setting(_))), "{number}");
    }
    assert!(build(|topics| topics).is_ok());

    let Nodes { nodes, .. } = Nodes::new(1);
    let topic = |name: &str| nodes[0].topics.topic(name, Numbered);
    let refused = [
        topic(""),
        topic("a\n"),
        topic("x").history(HistoryLimits::new().age(Duration::ZERO)),
        topic("x").id_window(Duration::ZERO),
        topic("x").max_members(0),
        topic("x").max_joiners(0),
        topic("x").max_recent(usize::MAX),
        topic("x").max_recent_bytes(usize::MAX),
    ];
    for (number, topic) in refused.into_iter().enumerate() {
        assert!(matches!(topic.open(), Err(Error::Setting(_))), "{number}");
    }
}

#[test]
fn all_nodes_have_the_same_number_of_partitions() {
    let (group, broker) = (one_loop(), MemoryBroker::new());
    let _first = Topics::builder(&group, broker.clone()).partitions(16).build().unwrap();
    let other = Topics::builder(&group, broker.clone()).partitions(32).build().unwrap_err();
    assert!(matches!(BrokerError::of(&other), Some(BrokerError::Partitions { found: 16, asked: 32, .. })));
    assert!(Topics::builder(&group, broker).partitions(16).build().is_ok());
}

#[test]
fn a_name_is_one_topic_with_one_type() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let again = nodes[0].topics.topic("lobby", Numbered).open().unwrap();
    let mut member = Member::join(&nodes[0]);
    assert_eq!(again.members().len(), 1);
    done(again.publish(Bytes::from("one"))).unwrap();
    member.expect(&["1 one"]);
    let other = nodes[0].topics.topic("lobby", Texts).open();
    assert!(matches!(other, Err(Error::Setting(_))));
}

#[test]
fn limits_are_named() {
    let (group, broker) = (one_loop(), MemoryBroker::new());
    let topics = Topics::builder(&group, broker).max_topics(2).max_payload(10).build().unwrap();
    let lobby = topics.topic("lobby", Numbered).max_members(1).open().unwrap();
    let other = topics.topic("other", Numbered).open().unwrap();
    let full = topics.topic("third", Numbered).open().unwrap_err();
    assert!(matches!(full, Error::Full { resource: Resource::Topics, limit: 2, .. }), "{full}");
    drop(other);
    topics.topic("third", Numbered).open().expect("another topic is not used any more");

    let (mut first, mut second) = (Member::new(), Member::new());
    done(lobby.subscribe(first.channel())).unwrap();
    let full = done(lobby.subscribe(second.channel())).unwrap_err();
    assert!(matches!(full, Error::Full { resource: Resource::TopicMembers, limit: 1, .. }), "{full}");

    assert!(done(lobby.publish(Bytes::from("10 bytes.."))).is_ok());
    assert!(matches!(done(lobby.publish(Bytes::from("11 bytes..."))), Err(Error::Setting(_))));
}
