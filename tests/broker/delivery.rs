//! Formats that deliver messages themselves, and topics that are followed without members.

use crate::{
    members::{Member, Nodes},
    support::{
        journal::Journal,
        wait::{SECOND, done, ms, wait_until},
    },
};
use bytes::Bytes;
use netwheel::{
    Channel, ChannelGroup, Error, Result, SendError,
    broker::{BrokerError, Position, Subscription, TopicFormat},
    channel::Broadcast,
    error::Resource,
};
use std::sync::{Arc, Mutex};

/// Writes another copy to one member.
#[derive(Clone, Default)]
struct OwnCopy {
    member: Arc<Mutex<Option<Channel<Bytes>>>>,
    /// The offsets of the messages, and the number of members that received each.
    delivered: Journal<(u64, usize)>,
    offset: Arc<Mutex<u64>>,
}

impl TopicFormat<Bytes> for OwnCopy {
    fn encode(&self, message: &Bytes) -> Result<Bytes> {
        Ok(message.clone())
    }

    fn decode(&self, payload: Bytes, _: Option<Position>) -> Result<Bytes> {
        Ok(payload)
    }

    fn deliver(
        &self,
        message: Bytes,
        position: Position,
        members: &ChannelGroup<Bytes>,
    ) -> Result<Broadcast, SendError<Bytes>> {
        *self.offset.lock().unwrap() = position.offset;
        let member = self.member.lock().unwrap();
        let Some(member) = member.as_ref() else { return members.broadcast(message) };
        let sent = members.broadcast_except(member.id(), message.clone());
        member.write([b"own ", &message[..]].concat().into())?;
        sent
    }

    fn delivered(&self, broadcast: Broadcast) {
        self.delivered.push((*self.offset.lock().unwrap(), broadcast.members()));
    }
}

#[test]
fn a_format_may_write_another_copy_to_one_member() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let format = OwnCopy::default();
    let topic = nodes[0].topics.topic("attic", format.clone()).open().unwrap();
    let mut members = [Member::new(), Member::new(), Member::new()];
    for member in &mut members {
        done(topic.subscribe(Subscription::new(member.channel()))).unwrap();
    }
    *format.member.lock().unwrap() = Some(members[1].channel());
    for text in ["one", "two"] {
        done(topic.publish(Bytes::from(text))).unwrap();
    }
    let [first, own, last] = &mut members;
    own.expect(&["own one", "own two"]);
    first.expect(&["one", "two"]);
    last.expect(&["one", "two"]);
    assert_eq!(format.delivered.all(), [(1, 2), (2, 2)]);
}

#[test]
fn a_watched_topic_is_followed_without_members() {
    let nodes = Nodes::new(2);
    let format = OwnCopy::default();
    let topic = nodes.nodes[0].topics.topic("attic", format.clone()).open().unwrap();
    let other = nodes.nodes[1].topics.topic("attic", OwnCopy::default()).open().unwrap();
    let publish = || {
        done(other.publish(Bytes::from("x"))).unwrap();
    };
    publish();
    let watch = topic.watch();
    for n in 1..=5 {
        publish();
        nodes.advance(20 * SECOND);
        wait_until("the message is there", || format.delivered.len() == n);
    }
    drop(watch);
    for _ in 0..4 {
        nodes.advance(20 * SECOND);
    }
    publish();
    assert_eq!(format.delivered.all(), [(2, 0), (3, 0), (4, 0), (5, 0), (6, 0)]);
}

#[test]
fn a_watch_is_ready_when_it_has_its_first_position() {
    let nodes = Nodes::new(2);
    let [one, other] = &nodes.nodes[..] else { panic!("two nodes") };
    let format = OwnCopy::default();
    let topic = one.topics.topic("attic", format.clone()).max_joiners(2).open().unwrap();
    let other = other.topics.topic("attic", OwnCopy::default()).open().unwrap();
    let publish = || done(other.publish(Bytes::from("x"))).unwrap();
    one.broker.fail_reads(true);
    let watch = topic.watch();
    let waiting = [watch.ready(), watch.ready()];
    let refused = done(watch.ready()).unwrap_err();
    assert!(matches!(refused, Error::Full { resource: Resource::TopicJoiners, limit: 2, .. }), "{refused}");
    for failures in 1..3 {
        wait_until("the read has failed", || one.topics.metrics().read_failures == failures);
        publish();
        assert!(waiting.iter().all(|ready| !ready.is_done()));
        nodes.advance(ms(100));
    }
    one.broker.fail_reads(false);
    nodes.advance(ms(100));
    waiting.into_iter().for_each(|ready| done(ready).unwrap());
    publish();
    wait_until("the message is there", || format.delivered.all() == [(3, 0)]);
    done(watch.ready()).unwrap();
}

#[test]
fn a_watch_of_a_topic_that_cannot_be_read_fails() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let node = &nodes[0];
    let map = node.topics.map("attic").open().unwrap();
    done(map.set("ann", "1")).unwrap();
    drop(map);
    wait_until("the map is forgotten", || node.topics.metrics().topics == 1);
    let watch = node.topics.topic("attic", OwnCopy::default()).open().unwrap().watch();
    assert_eq!(BrokerError::of(&done(watch.ready()).unwrap_err()), Some(&BrokerError::WrongKind));
    node.broker.fail_reads(true);
    let cellar = node.topics.topic("cellar", OwnCopy::default()).open().unwrap().watch();
    let waiting = cellar.ready();
    assert!(!waiting.is_done());
    done(node.topics.close()).unwrap();
    for closed in [waiting, cellar.ready(), watch.ready()] {
        assert_eq!(BrokerError::of(&done(closed).unwrap_err()), Some(&BrokerError::Closed));
    }
}
