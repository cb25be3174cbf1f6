//! Messages that are stored while a node asks, joins or rests.

use crate::{
    faulty::Events,
    members::{Member, Nodes, Numbered},
    support::wait::{SECOND, done, ms, wait_until},
};
use bytes::Bytes;
use netwheel::broker::{TopicName, store::Partitions};
use std::sync::{Arc, Mutex};

/// Returns the name of another topic in the partition of the lobby.
fn neighbour() -> String {
    let partitions = Partitions::default();
    let of = |name: &str| partitions.of(&TopicName::new(name).unwrap());
    (0..).map(|n| format!("room-{n}")).find(|name| of(name) == of("lobby")).unwrap()
}

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

#[test]
fn a_read_that_failed_is_repeated_soon_and_then_less_often() {
    let nodes = Nodes::new(2);
    let [one, other] = &nodes.nodes[..] else { panic!("two nodes") };
    let mut member = Member::join(one);
    one.broker.set_events(Events::Lose);
    other.publish("one");
    one.broker.set_events(Events::Pass);
    one.broker.fail_reads(true);
    one.broker.fail_tops(true);
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
