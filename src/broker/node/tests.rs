//! Races of a node that tests on sockets cannot reach.

use super::{NodeSettings, TopicNode, followed::FollowedTopic, node_partition::NodePartition};
use crate::{
    broker::store::{BrokerError, MemoryBroker, Notification, Position, TopicChange, TopicName, TopicTop},
    group::EventLoopGroup,
};
use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

struct Closable {
    name: TopicName,
    is_closed: AtomicBool,
}

impl Closable {
    fn new(name: &str) -> Arc<Self> {
        Arc::new(Closable { name: TopicName::new(name).unwrap(), is_closed: AtomicBool::new(false) })
    }
}

impl FollowedTopic for Closable {
    fn name(&self) -> &TopicName {
        &self.name
    }

    fn stored(self: Arc<Self>, _: TopicChange) {}

    fn notified(self: Arc<Self>, _: Notification) {}

    fn seen(&self) -> Option<Position> {
        None
    }

    fn verified(self: Arc<Self>, _: Option<Position>, _: TopicTop) {}

    fn interrupted(self: Arc<Self>, _: &BrokerError) {}

    fn resumed(self: Arc<Self>) {}

    fn retry(self: Arc<Self>) {}

    fn forget_old_messages(&self) {}

    fn rest(&self) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(()))
    }

    fn close(self: Arc<Self>) {
        self.is_closed.store(true, Ordering::Release);
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

#[test]
fn a_topic_that_is_added_while_the_node_closes_is_released() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let hour = Duration::from_secs(3600);
    let settings = NodeSettings { verify_interval: hour, lease: hour, ..NodeSettings::default() };
    let broker = Arc::new(MemoryBroker::new());
    let node = TopicNode::start(broker, group.next().clone(), settings).unwrap();
    let topics = ["one", "two"].map(Closable::new);
    node.activate(topics[0].clone());
    assert_eq!(node.metrics.snapshot().followed_partitions, 1);
    node.close().wait().unwrap();
    // As if the other thread had asked whether the node is closed before.
    node.activate(topics[1].clone());
    for topic in topics {
        assert!(topic.is_closed.load(Ordering::Acquire));
        assert_eq!(Arc::strong_count(&topic), 1, "the node keeps no topic");
    }
    assert_eq!(node.metrics.snapshot().followed_partitions, 0);
}

#[test]
fn a_resting_topic_that_was_taken_is_not_the_last_one() {
    let (part, topic) = (NodePartition::default(), Closable::new("one"));
    assert!(part.add(topic.clone()));
    assert_eq!(part.take_topics().len(), 1);
    let topic: Arc<dyn FollowedTopic> = topic;
    assert!(!part.remove_resting(&topic), "another thread has counted it");
    assert!(part.add(topic.clone()));
    assert!(part.remove_resting(&topic));
}

#[test]
fn a_resting_topic_is_not_mistaken_for_another_one_with_its_name() {
    let (part, topic, other) = (NodePartition::default(), Closable::new("one"), Closable::new("one"));
    assert!(part.add(other.clone()));
    let topic: Arc<dyn FollowedTopic> = topic;
    assert!(!part.remove_resting(&topic));
    assert_eq!(part.topics().len(), 1, "the other one is followed");
}
