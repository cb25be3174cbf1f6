//! Races of a topic that tests on sockets cannot reach.

use super::{core::TopicCore, format::TopicFormat, settings::TopicSettings, subscription::Subscription};
use crate::{
    broker::{
        node::{NodeSettings, TopicNode},
        store::{BrokerError, MemoryBroker, Position, TopicName},
    },
    channel::Pipeline,
    codec::RawBytes,
    error::{Error, Result},
    group::EventLoopGroup,
    pipeline::{Context, Handler},
    sync::completion,
    testing::EmbeddedChannel,
};
use bytes::Bytes;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{scope, yield_now},
    time::Duration,
};

struct Text;

impl TopicFormat<Bytes> for Text {
    fn encode(&self, message: &Bytes) -> Result<Bytes> {
        Ok(message.clone())
    }

    fn decode(&self, payload: Bytes, _: Option<Position>) -> Result<Bytes> {
        Ok(payload)
    }
}

struct Quiet;

impl Handler for Quiet {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

fn topic(group: &EventLoopGroup) -> Arc<TopicCore<Bytes>> {
    let hour = Duration::from_secs(3600);
    let settings = NodeSettings { verify_interval: hour, lease: hour, ..NodeSettings::default() };
    let node = TopicNode::start(Arc::new(MemoryBroker::new()), group.next().clone(), settings).unwrap();
    let name = TopicName::new("lobby").unwrap();
    TopicCore::new(node, name, Box::new(Text), TopicSettings::default(), None)
}

/// The node is closed while the other thread waits for the lock of the topic.
#[test]
fn a_channel_does_not_join_a_topic_whose_node_was_closed_meanwhile() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    for _ in 0..10 {
        let topic = topic(&group);
        let mut member = EmbeddedChannel::new(Pipeline::codec(RawBytes).handler(Quiet));
        let channel = member.channel();
        let begins = AtomicBool::new(false);
        let join = || {
            begins.store(true, SeqCst);
            topic
                .begin_join(Subscription::new(channel.clone()), completion(None).0)
                .map_err(|(_, error)| error)
        };
        let joined = scope(|scope| {
            let joining = topic.state.read(|_| {
                let joining = scope.spawn(join);
                while !begins.load(SeqCst) {
                    yield_now();
                }
                // The thread most likely reaches the lock. It may also be slower: the result is the
                // same.
                for _ in 0..50 {
                    yield_now();
                }
                topic.node.close().detach();
                joining
            });
            joining.join().unwrap()
        });
        assert_eq!(BrokerError::of(&joined.unwrap_err()), Some(&BrokerError::Closed));
        assert!(topic.state.read(|state| state.joining.is_empty()));
    }
}

#[test]
fn a_late_answer_does_not_count_as_a_read() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let topic = topic(&group);
    topic.state.change(|state| (state.retry.answered(true), ()));
    // The read began before the topic was reset, because it had no members.
    topic.answered(0, Err(Error::Closed));
    assert_eq!(topic.state.read(|state| state.retry.failures()), 1);
    topic.node.close().detach();
}
