//! Formats that deliver messages themselves, and topics that are followed without members.

use crate::{
    members::{Member, Nodes},
    support::{
        journal::Journal,
        wait::{SECOND, done, wait_until},
    },
};
use bytes::Bytes;
use netwheel::{
    Channel, ChannelGroup, Result, SendError,
    broker::{Position, Subscription, TopicFormat},
    channel::Broadcast,
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
