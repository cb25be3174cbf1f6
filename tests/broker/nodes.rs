//! Three nodes without faults.

use crate::{
    members::{Member, Nodes, Numbered},
    support::{
        loops::end,
        wait::{SECOND, done, wait_until},
    },
};
use bytes::Bytes;
use netwheel::{
    Error,
    broker::{
        BrokerError, HistoryLimits, MessageId, NewMessage, Position, Subscription, Topics, store::NodeLease,
    },
};
use std::{sync::Arc, thread};

#[test]
fn members_on_all_nodes_receive_every_message_once_and_in_order() {
    let Nodes { nodes, .. } = Nodes::new(3);
    let mut members: Vec<Member> =
        nodes.iter().flat_map(|node| [Member::join(node), Member::join(node)]).collect();
    thread::scope(|scope| {
        for (number, node) in nodes.iter().enumerate() {
            scope.spawn(move || {
                for n in 0..100 {
                    node.publish(&format!("{number}-{n}"));
                }
            });
        }
    });
    wait_until("all have arrived", || members.iter_mut().all(|member| member.lines().len() == 300));
    let first = members[0].lines().to_vec();
    assert!(members.iter_mut().all(|member| member.lines() == first));
    for (offset, line) in first.iter().enumerate() {
        assert!(line.starts_with(&format!("{} ", offset + 1)), "{line}");
    }
    for number in 0..3 {
        let of_node = first
            .iter()
            .filter(|line| line.contains(&format!(" {number}-")))
            .map(|line| line.rsplit('-').next().and_then(|n| n.parse::<usize>().ok()).expect("a number"));
        assert!(of_node.is_sorted(), "the messages of a node keep their order");
    }
}

#[test]
fn a_client_resumes_on_another_node() {
    let Nodes { nodes, .. } = Nodes::new(3);
    let mut member = Member::join(&nodes[0]);
    let seen = nodes[1].publish("one");
    member.expect(&["1 one"]);
    member.close();
    nodes[2].publish("two");
    nodes[0].publish("three");
    let (mut member, joined) = Member::resume(&nodes[1], seen);
    assert_eq!((joined.position, joined.recovered), (seen, true));
    nodes[2].publish("four");
    member.expect(&["2 two", "3 three", "4 four"]);
    // Twice, without a message in between, and at once.
    let (mut again, joined) = Member::resume(&nodes[2], seen);
    assert_eq!((joined.position, joined.recovered), (seen, true));
    again.expect(&["2 two", "3 three", "4 four"]);
}

#[test]
fn the_position_is_known_also_for_an_empty_topic() {
    let Nodes { nodes, .. } = Nodes::new(2);
    let (mut member, joined) = Member::subscribe(&nodes[0], |subscription| {
        subscription
            .greeting(|joined| Some(format!("at {} {}", joined.position.offset, joined.recovered).into()))
    });
    assert_eq!((joined.position.offset, joined.recovered), (0, true));
    member.expect(&["at 0 true"]);
    member.close();
    nodes[1].publish("one");
    let (mut member, joined) = Member::resume(&nodes[1], joined.position);
    assert!(joined.recovered);
    member.expect(&["1 one"]);
}

#[test]
fn a_member_may_begin_with_the_last_messages() {
    let Nodes { nodes, .. } = Nodes::new(2);
    for text in ["one", "two", "three"] {
        nodes[0].publish(text);
    }
    for (last, expected) in [(0, &[][..]), (2, &["2 two", "3 three"]), (9, &["1 one", "2 two", "3 three"])] {
        for node in &nodes {
            let (mut member, joined) = Member::subscribe(node, |subscription| subscription.last(last));
            assert_eq!((joined.position.offset, joined.recovered), (3 - expected.len() as u64, true));
            member.expect(expected);
        }
    }
}

#[test]
fn a_position_that_cannot_be_resumed_is_not_recovered() {
    let limits = HistoryLimits::new().messages(3);
    let Nodes { nodes, .. } = Nodes::with(2, |lobby| lobby.history(limits).max_recent(1));
    let first = nodes[0].publish("one");
    nodes[0].publish_numbers(2..=6);
    let unknown = Position::new(first.epoch ^ 1, 5);
    let ahead = Position::new(first.epoch, 7);
    let huge = Position::new(u64::MAX, u64::MAX);
    for position in [first, unknown, ahead, huge] {
        let (mut member, joined) = Member::resume(&nodes[1], position);
        assert_eq!((joined.position.offset, joined.recovered), (6, false), "{position}");
        member.expect(&[]);
        let (mut member, joined) =
            Member::subscribe(&nodes[1], |subscription| subscription.after(position).last(2));
        assert_eq!((joined.position.offset, joined.recovered), (4, false), "{position}");
        member.expect(&["5 5", "6 6"]);
    }
    let (mut member, joined) = Member::resume(&nodes[1], Position::new(first.epoch, 3));
    assert!(joined.recovered, "the oldest position with everything behind it");
    member.expect(&["4 4", "5 5", "6 6"]);
}

#[test]
fn a_thousand_resumes_are_one_read() {
    let Nodes { nodes, .. } = Nodes::new(2);
    let first = nodes[0].publish("one");
    nodes[0].publish_numbers(2..=10);
    let mut members: Vec<Member> = (0..1000).map(|_| Member::resume(&nodes[1], first).0).collect();
    assert!(members.iter_mut().all(|member| member.lines().len() == 9));
    assert_eq!(nodes[1].broker.reads(), 1);
    assert_eq!(nodes[1].topics.metrics().joined, 1000);
}

#[test]
fn a_repeated_message_is_stored_once() {
    let Nodes { nodes, clock, .. } = Nodes::new(2);
    let mut member = Member::join(&nodes[1]);
    let id = MessageId::new("ann", "1").unwrap();
    let publish = |node: usize, text: &'static str| {
        let message = NewMessage::new(Bytes::from(text)).id(id.clone());
        done(nodes[node].lobby.publish(message)).unwrap()
    };
    let first = publish(0, "one");
    let again = publish(1, "one");
    assert!(!first.is_duplicate && again.is_duplicate && again.position == first.position);
    clock.advance(601 * SECOND);
    assert!(!publish(1, "one").is_duplicate, "the window of ten minutes is over");
    member.expect(&["1 one", "2 one"]);
    assert_eq!(nodes[1].topics.metrics().duplicates, 1);
}

#[test]
fn notifications_reach_all_nodes_and_the_newest_one_counts() {
    let Nodes { nodes, .. } = Nodes::new(2);
    let mut members = [Member::join(&nodes[0]), Member::join(&nodes[1])];
    nodes[0].lobby.notify(&Bytes::from("typing")).unwrap();
    nodes[1].lobby.notify_latest(7, &Bytes::from("cursor 1")).unwrap();
    members.iter_mut().for_each(|member| member.expect(&["- typing", "- cursor 1"]));
    nodes[0].publish("one");
    let (mut late, joined) = Member::subscribe(&nodes[1], |subscription| subscription.last(9));
    assert_eq!(joined.position.offset, 0);
    late.expect(&["1 one"]);
}

#[test]
fn a_member_leaves() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let mut member = Member::join(&nodes[0]);
    let id = member.id();
    let again = done(nodes[0].lobby.subscribe(member.channel()));
    assert!(matches!(again, Err(Error::Setting(_))), "it is a member already");
    assert!(nodes[0].lobby.members().contains(id));
    assert!(nodes[0].lobby.leave(id) && !nodes[0].lobby.leave(id));
    nodes[0].publish("one");
    member.expect(&[]);
    let mut closed = Member::new();
    closed.close();
    assert!(done(nodes[0].lobby.subscribe(closed.channel())).is_err());
    assert!(nodes[0].lobby.members().is_empty());
}

#[test]
fn a_topic_without_members_is_not_followed_after_some_time() {
    let nodes = Nodes::new(1);
    let node = &nodes.nodes[0];
    let mut member = Member::join(node);
    assert_eq!(node.topics.metrics().followed_partitions, 1);
    nodes.advance(60 * SECOND);
    assert_eq!(node.topics.metrics().followed_partitions, 1);
    member.close();
    for _ in 0..5 {
        nodes.advance(10 * SECOND);
    }
    wait_until("it is not followed", || node.topics.metrics().followed_partitions == 0);
    let seen = node.publish("one");
    let mut member = Member::join(node);
    node.publish("two");
    member.expect(&["2 two"]);
    let (mut member, joined) = Member::resume(node, seen);
    assert!(joined.recovered);
    member.expect(&["2 two"]);
}

#[test]
fn ten_thousand_quiet_topics_cost_one_request_per_partition() {
    let nodes = Nodes::new(1);
    let node = &nodes.nodes[0];
    let topics = |n: usize| node.topics.topic(format!("room-{n}"), Numbered).open().unwrap();
    let members: Vec<_> = (0..1000)
        .map(|n| {
            let (topic, mut member) = (topics(n), Member::new());
            done(topic.subscribe(Subscription::new(member.channel()))).unwrap();
            (topic, member)
        })
        .collect();
    let before = node.broker.tops_asked();
    nodes.advance(10 * SECOND);
    wait_until("all partitions are verified", || node.broker.tops_asked() >= before + 64);
    nodes.advance(SECOND);
    assert_eq!(node.broker.tops_asked(), before + 64);
    drop(members);
}

#[test]
fn messages_that_are_not_understood_have_a_position_all_the_same() {
    let Nodes { nodes, .. } = Nodes::new(1);
    let mut member = Member::join(&nodes[0]);
    assert!(done(nodes[0].lobby.publish(Bytes::from("bad"))).is_err());
    for text in ["one", "poison", "panic", "four"] {
        nodes[0].publish(text);
    }
    member.expect(&["1 one", "4 four"]);
    assert_eq!(nodes[0].topics.metrics().undecodable, 2);
}

#[test]
fn a_closed_node_refuses() {
    let Nodes { nodes, .. } = Nodes::new(2);
    let mut member = Member::join(&nodes[0]);
    assert!(nodes[0].topics.authority().is_some());
    done(nodes[0].topics.close()).unwrap();
    assert_eq!(nodes[0].topics.authority(), None, "its lease has ended");
    assert_eq!(nodes[0].topics.metrics().followed_partitions, 0);
    let is_closed = |error: &Error| BrokerError::of(error) == Some(&BrokerError::Closed);
    assert!(done(nodes[0].lobby.publish(Bytes::from("x"))).is_err_and(|error| is_closed(&error)));
    assert!(nodes[0].lobby.notify(&Bytes::from("x")).is_err_and(|error| is_closed(&error)));
    assert!(done(nodes[0].lobby.subscribe(Member::new().channel())).is_err_and(|error| is_closed(&error)));
    assert!(nodes[0].topics.topic("new", Numbered).open().is_err_and(|error| is_closed(&error)));
    nodes[1].publish("one");
    member.expect(&[]);
    done(nodes[0].topics.close()).unwrap();
}

#[test]
fn a_dropped_node_ends_its_lease_and_the_end_of_the_group_ends_the_node() {
    let nodes = Nodes::new(0);
    let watcher = Topics::builder(&nodes.group, nodes.store.clone()).build().unwrap();
    let start = || {
        let broker = Arc::new(nodes.store.clone());
        let weak = Arc::downgrade(&broker);
        (Topics::builder(&nodes.group, broker).build().unwrap(), weak)
    };
    let renew = |id| done(watcher.broker().renew(NodeLease::renew(id, SECOND)));
    let (dropped, broker) = start();
    let id = dropped.authority().expect("it has a lease");
    drop(dropped);
    let ended = renew(id).unwrap_err();
    assert_eq!(BrokerError::of(&ended), Some(&BrokerError::LeaseEnded));
    wait_until("the broker is dropped", || broker.upgrade().is_none());

    let (topics, broker) = start();
    let mut member = Member::new();
    let lobby = topics.topic("lobby", Numbered).open().unwrap();
    done(lobby.subscribe(member.channel())).unwrap();
    drop((topics, lobby));
    assert!(broker.upgrade().is_some(), "a topic with members keeps its node");
    end(&nodes.group);
    wait_until("the node has ended", || broker.upgrade().is_none());
    assert_eq!(watcher.authority(), None);
}

#[test]
fn topics_without_handles_and_members_are_forgotten() {
    let nodes = Nodes::new(1);
    let node = &nodes.nodes[0];
    let open = |n: usize| node.topics.topic(format!("room-{n}"), Numbered).open().unwrap();
    let rooms: Vec<_> = (0..9).map(open).collect();
    let again = open(0);
    assert_eq!(node.topics.metrics().topics, 10, "with the lobby");
    let mut member = Member::new();
    done(rooms[1].subscribe(member.channel())).unwrap();
    drop(rooms);
    assert_eq!(node.topics.metrics().topics, 3);
    drop(again);
    member.close();
    for _ in 0..5 {
        nodes.advance(10 * SECOND);
    }
    wait_until("the room is not followed", || node.topics.metrics().topics == 1);
}

#[test]
fn the_recent_messages_of_a_quiet_topic_are_forgotten_until_they_are_needed() {
    let nodes = Nodes::new(1);
    let node = &nodes.nodes[0];
    let _member = Member::join(node);
    let first = node.publish("one");
    node.publish("two");
    let resume = || Member::resume(node, first).0.expect(&["2 two"]);
    let reads = node.broker.reads();
    for _ in 0..2 {
        nodes.advance(10 * SECOND);
        resume();
    }
    assert_eq!(node.broker.reads(), reads, "they are in memory");
    nodes.advance(10 * SECOND);
    resume();
    assert_eq!(node.broker.reads(), reads + 1);
    resume();
    node.publish("three");
    Member::resume(node, first).0.expect(&["2 two", "3 three"]);
    assert_eq!(node.broker.reads(), reads + 1, "they are in memory again");
}
