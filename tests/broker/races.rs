//! Messages that are stored while a node asks, joins or rests.

use crate::{
    faulty::Events,
    members::{Member, Nodes, Numbered, TestNode, neighbour},
    support::wait::{SECOND, done, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{
    Completion, Error, Result,
    broker::{Joined, Position, Subscription, Topic, TopicFormat},
    error::Resource,
};
use std::sync::{Arc, Mutex, OnceLock};

#[test]
fn a_loss_is_found_although_the_first_question_failed_and_events_arrive() {
    let nodes = Nodes::new(2);
    let [one, other] = &nodes.nodes[..] else { panic!("two nodes") };
    let mut member = Member::join(one);
    let neighbour = other.topics.topic(neighbour(), Numbered).open().unwrap();
    let publish = || done(neighbour.publish(Bytes::from("x"))).unwrap();
    publish();
    one.broker.set_cut(true);
    other.publish("one");
    one.broker.fail_tops(true);
    one.broker.set_cut(false);
    publish();
    one.broker.fail_tops(false);
    publish();
    nodes.advance(10 * SECOND);
    member.expect(&["1 one"]);
}

#[test]
fn a_message_that_was_stored_during_the_first_read_is_not_missed() {
    let Nodes { nodes, .. } = Nodes::new(2);
    let [one, other] = &nodes[..] else { panic!("two nodes") };
    one.broker.hold_reads();
    let mut member = Member::new();
    let joined = one.lobby.subscribe(member.channel());
    one.broker.set_events(Events::Lose);
    other.publish("one");
    one.broker.set_events(Events::Pass);
    one.broker.follow_again();
    one.broker.release_reads();
    assert_eq!(done(joined).unwrap().position.offset, 0);
    member.expect(&["1 one"]);
    assert_eq!(one.broker.reads(), 2);
}

#[test]
fn nothing_is_read_before_the_partition_is_followed() {
    let Nodes { nodes, .. } = Nodes::new(2);
    let [one, other] = &nodes[..] else { panic!("two nodes") };
    let (mut first, mut second) = (Member::new(), Member::new());
    let joined = Arc::new(Mutex::new(None));
    // Another thread subscribes while the first one has the topic followed.
    one.broker.before_follow({
        let (lobby, broker, channel) = (one.lobby.clone(), one.broker.clone(), second.channel());
        let joined = joined.clone();
        move || {
            let subscribed = std::thread::spawn(move || lobby.subscribe(channel)).join().unwrap();
            assert_eq!(broker.reads(), 0);
            *joined.lock().unwrap() = Some(subscribed);
        }
    });
    done(one.lobby.subscribe(first.channel())).unwrap();
    done(joined.lock().unwrap().take().unwrap()).unwrap();
    assert_eq!(one.broker.reads(), 1);
    other.publish("one");
    [first, second].iter_mut().for_each(|member| member.expect(&["1 one"]));
}

/// Stores a message whose event one node does not receive. That node cannot ask for it either.
fn lose_one_event(one: &TestNode, other: &TestNode) {
    one.broker.set_events(Events::Lose);
    other.publish("one");
    one.broker.set_events(Events::Pass);
    one.broker.fail_tops(true);
}

#[test]
fn a_read_that_failed_is_repeated_soon_and_then_less_often() {
    let nodes = Nodes::new(2);
    let [one, other] = &nodes.nodes[..] else { panic!("two nodes") };
    let mut member = Member::join(one);
    lose_one_event(one, other);
    one.broker.fail_reads(true);
    // The event of the second message reveals that the first one is missing.
    other.publish("two");
    wait_until("the read has failed", || one.topics.metrics().read_failures == 1);
    for failures in 2..5 {
        nodes.advance(ms(100 << (failures - 2)));
        assert_eq!(one.topics.metrics().read_failures, failures);
    }
    one.broker.fail_reads(false);
    nodes.advance(ms(799));
    member.expect(&[]);
    nodes.advance(ms(1));
    member.expect(&["1 one", "2 two"]);
}

#[test]
fn a_read_without_the_missing_messages_is_repeated_less_and_less_often() {
    let nodes = Nodes::new(2);
    let [one, other] = &nodes.nodes[..] else { panic!("two nodes") };
    let mut member = Member::join(one);
    lose_one_event(one, other);
    one.broker.empty_reads(true);
    let before = one.broker.reads();
    other.publish("two");
    wait_until("the store was read", || one.broker.reads() == before + 1);
    for reads in 2..5 {
        nodes.advance(ms((100 << (reads - 2)) - 1));
        assert_eq!(one.broker.reads(), before + reads - 1);
        nodes.advance(ms(1));
        assert_eq!(one.broker.reads(), before + reads);
    }
    one.broker.empty_reads(false);
    nodes.advance(ms(800));
    member.expect(&["1 one", "2 two"]);
}

/// Makes messages whose destructor calls the topic.
struct Calling(Arc<OnceLock<Topic<Bytes>>>);

struct Message(Bytes, Arc<OnceLock<Topic<Bytes>>>);

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let subscribed = self.1.get().map(|topic| topic.subscribe(Member::new().channel()));
        subscribed.into_iter().for_each(Completion::detach);
    }
}

impl TopicFormat<Bytes> for Calling {
    fn encode(&self, message: &Bytes) -> Result<Bytes> {
        Ok(message.clone())
    }

    fn decode(&self, payload: Bytes, _: Option<Position>) -> Result<Bytes> {
        Ok(Bytes::from_owner(Message(payload, self.0.clone())))
    }
}

#[test]
fn destructors_of_messages_may_call_the_topic() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let handle = Arc::new(OnceLock::new());
    let topic = nodes[0].topics.topic("calling", Calling(handle.clone())).max_recent(1).open().unwrap();
    let mut member = Member::new();
    done(topic.subscribe(member.channel())).unwrap();
    handle.set(topic.clone()).unwrap();
    for text in ["one", "two", "three"] {
        done(topic.publish(Bytes::from(text))).unwrap();
    }
    member.expect(&["one", "two", "three"]);
    done(topic.publish(Bytes::from("four"))).unwrap();
    member.expect(&["one", "two", "three", "four"]);
}

#[test]
fn a_channel_may_leave_while_it_waits_and_come_again() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let node = &nodes[0];
    node.publish("one");
    node.broker.hold_reads();
    let mut member = Member::new();
    let subscribe = |member: &mut Member| node.lobby.subscribe(Subscription::new(member.channel()).last(5));
    let left = subscribe(&mut member);
    let id = member.id();
    assert!(node.lobby.leave(id) && !node.lobby.leave(id));
    assert!(matches!(done(left), Err(Error::Cancelled)));
    let joined = subscribe(&mut member);
    node.broker.release_reads();
    done(joined).unwrap();
    member.expect(&["1 one"]);
}

#[test]
fn a_channel_may_leave_in_the_greeting_and_come_again() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let lobby = nodes[0].lobby.clone();
    nodes[0].publish("one");
    let mut member = Member::new();
    let (id, again) = (member.id(), member.channel());
    let joined = Arc::new(Mutex::new(None));
    let greeting = {
        let (lobby, joined) = (lobby.clone(), joined.clone());
        // The steps that follow are made already.
        move |_: &Joined| {
            assert!(lobby.leave(id));
            let second = Subscription::new(again).last(1).greeting(|_| Some("again".into()));
            *joined.lock().unwrap() = Some(lobby.subscribe(second));
            Some("hello".into())
        }
    };
    let left = lobby.subscribe(Subscription::new(member.channel()).last(1).greeting(greeting));
    assert!(matches!(done(left), Err(Error::Cancelled)));
    done(joined.lock().unwrap().take().unwrap()).unwrap();
    member.expect(&["again", "1 one"]);
    assert_eq!(lobby.members().len(), 1);
}

#[test]
fn joiners_count_as_members_and_have_their_own_limit() {
    for (members, joiners) in [(3, 9), (9, 3)] {
        let Nodes { nodes, .. } = Nodes::with(1, |lobby| lobby.max_members(members).max_joiners(joiners));
        let node = &nodes[0];
        node.broker.hold_reads();
        let mut channels: Vec<_> = (0..4).map(|_| Member::new()).collect();
        let mut joined: Vec<_> =
            channels.iter_mut().map(|member| node.lobby.subscribe(member.channel())).collect();
        let refused = done(joined.pop().unwrap()).unwrap_err();
        let expected = if members == 3 { Resource::TopicMembers } else { Resource::TopicJoiners };
        let Error::Full { resource, limit: 3, .. } = refused else { panic!("{refused}") };
        assert_eq!(resource, expected);
        node.broker.release_reads();
        assert!(joined.into_iter().all(|joined| done(joined).is_ok()));
        assert_eq!(node.lobby.members().len(), 3);
    }
}
