//! Three nodes, and a broker with faults.

use crate::{
    faulty::{Events, Faulty},
    members::{Member, Nodes, Numbered, TestNode, neighbour},
    support::{
        journal::Journal,
        loops::end,
        wait::{SECOND, done, ms, wait_until},
    },
};
use bytes::Bytes;
use netwheel::broker::{
    BrokerError, HistoryLimits, LeaseEvent, Subscription, TopicName, Topics, WhenUnreachable,
};

fn lobby() -> TopicName {
    TopicName::new("lobby").unwrap()
}

#[test]
fn the_next_event_of_any_topic_in_the_partition_reveals_a_loss() {
    let Nodes { nodes, .. } = Nodes::new(2);
    let mut member = Member::join(&nodes[0]);
    nodes[0].broker.set_events(Events::Lose);
    nodes[1].publish_numbers(1..=3);
    member.expect(&[]);
    nodes[0].broker.set_events(Events::Pass);
    let neighbour = nodes[1].topics.topic(neighbour(), Numbered).open().unwrap();
    done(neighbour.publish(Bytes::from("x"))).unwrap();
    member.expect(&["1 1", "2 2", "3 3"]);
    assert_eq!(nodes[0].topics.metrics().gaps, 1);
}

#[test]
fn a_loss_in_a_quiet_partition_is_found_within_two_intervals() {
    let nodes = Nodes::new(2);
    let [one, other] = &nodes.nodes[..] else { panic!("two nodes") };
    let mut member = Member::join(one);
    one.broker.set_events(Events::Lose);
    other.publish("one");
    nodes.advance(10 * SECOND);
    nodes.advance(10 * SECOND);
    member.expect(&["1 one"]);
}

#[test]
fn held_reordered_and_doubled_events_are_delivered_once_and_in_order() {
    let Nodes { nodes, .. } = Nodes::new(2);
    let mut member = Member::join(&nodes[0]);
    nodes[0].broker.set_events(Events::Hold);
    nodes[1].publish_numbers(1..=5);
    wait_until("they are held", || nodes[0].broker.held() == 5);
    member.expect(&[]);
    nodes[0].broker.release_reversed();
    nodes[0].broker.set_events(Events::Double);
    nodes[1].publish_numbers(6..=9);
    let expected: Vec<String> = (1..=9).map(|n| format!("{n} {n}")).collect();
    member.expect(&expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn members_receive_what_was_stored_during_a_cut() {
    let Nodes { nodes, .. } = Nodes::new(3);
    let mut members: Vec<Member> = nodes.iter().map(Member::join).collect();
    nodes[0].publish("one");
    nodes[0].broker.set_cut(true);
    nodes[1].publish("two");
    let refused = done(nodes[0].lobby.publish(Bytes::from("x"))).unwrap_err();
    assert!(matches!(BrokerError::of(&refused), Some(BrokerError::Unreachable(_))), "{refused}");
    members[0].expect(&["1 one"]);
    // Joins from the position that the node has, and gets the rest with the others.
    let (mut late, joined) = Member::subscribe(&nodes[0], |subscription| subscription.last(1));
    assert_eq!(joined.position.offset, 0);
    late.expect(&["1 one"]);
    nodes[0].broker.set_cut(false);
    nodes[2].publish("three");
    members.push(late);
    members.iter_mut().for_each(|member| member.expect(&["1 one", "2 two", "3 three"]));
    let events = nodes[0].events.all();
    assert!(events[0].starts_with("Interrupted") && events[1] == "Resumed", "{events:?}");
    assert!(nodes[1].events.all().is_empty());
}

#[test]
fn a_topic_may_go_on_locally() {
    let Nodes { nodes, .. } = Nodes::with(2, |lobby| lobby.when_unreachable(WhenUnreachable::Local));
    let mut members: Vec<Member> = nodes.iter().map(Member::join).collect();
    nodes[0].broker.set_cut(true);
    let accepted = done(nodes[0].lobby.publish(Bytes::from("here"))).unwrap();
    assert_eq!(accepted.position, None);
    members[0].expect(&["- here"]);
    nodes[0].broker.set_cut(false);
    nodes[0].publish("everywhere");
    members[0].expect(&["- here", "1 everywhere"]);
    members[1].expect(&["1 everywhere"]);
    assert_eq!(nodes[0].topics.metrics().published_locally, 1);
}

#[test]
fn all_members_receive_a_notice_when_the_store_has_lost_messages() {
    let Nodes { nodes, store, .. } = Nodes::new(3);
    let mut members: Vec<Member> = nodes.iter().map(Member::join).collect();
    let positions: Vec<_> = (1..=5).map(|n| nodes[n % 3].publish(&n.to_string())).collect();
    assert_eq!(store.lose_newest(&lobby(), 2), 2);
    let next = nodes[1].publish("new");
    assert_eq!(next.offset, 4);
    assert_ne!(next.epoch, positions[0].epoch);
    let expected = ["1 1", "2 2", "3 3", "4 4", "5 5", "rewound 5 to 3", "4 new"];
    members.iter_mut().for_each(|member| member.expect(&expected));
    for node in &nodes {
        assert_eq!(node.topics.metrics().rewound, 1);
        assert!(node.events.all().iter().any(|event| event.starts_with("Missed")), "{:?}", node.events.all());
    }
    // A client that was away is not recovered, also after the topic has grown beyond its position.
    nodes[0].publish_numbers(1..=9);
    assert!(!Member::resume(&nodes[2], positions[4]).1.recovered);
    assert!(Member::resume(&nodes[2], positions[2]).1.recovered, "3 was not lost");
}

#[test]
fn all_members_receive_a_notice_when_the_store_has_lost_the_topic() {
    let Nodes { nodes, store, .. } = Nodes::new(2);
    let mut member = Member::join(&nodes[0]);
    let seen = nodes[1].publish("one");
    nodes[1].publish("two");
    store.lose_topic(&lobby());
    nodes[1].publish("new");
    member.expect(&["1 one", "2 two", "rewound 2 to 0", "1 new"]);
    assert!(!Member::resume(&nodes[1], seen).1.recovered);
}

#[test]
fn a_node_that_was_away_too_long_says_so() {
    let limits = HistoryLimits::new().messages(2);
    let Nodes { nodes, .. } = Nodes::with(2, |lobby| lobby.history(limits));
    let mut member = Member::join(&nodes[0]);
    nodes[1].publish("1");
    nodes[0].broker.set_cut(true);
    nodes[1].publish_numbers(2..=6);
    nodes[0].broker.set_cut(false);
    member.expect(&["1 1", "trimmed 1 to 4", "5 5", "6 6"]);
    assert_eq!(nodes[0].topics.metrics().trimmed, 1);
}

#[test]
fn a_join_fails_while_the_broker_cannot_be_reached() {
    let Nodes { nodes, .. } = Nodes::new(1);
    nodes[0].broker.set_cut(true);
    let refused = done(nodes[0].lobby.subscribe(Member::new().channel())).unwrap_err();
    assert!(matches!(BrokerError::of(&refused), Some(BrokerError::Unreachable(_))), "{refused}");
    nodes[0].broker.set_cut(false);
    let mut member = Member::join(&nodes[0]);
    nodes[0].publish("one");
    member.expect(&["1 one"]);
}

#[test]
fn a_subscription_to_a_delayed_topic_fails_with_the_end_of_its_loop() {
    let limits = HistoryLimits::new().messages(100_000);
    let nodes = Nodes::with(1, |lobby| lobby.history(limits));
    let node = &nodes.nodes[0];
    let _behind = Member::join(node);
    node.publish_numbers(1..=16_400);
    assert!(node.topics.metrics().delayed > 0, "more broadcasts wait than a group accepts");
    let mut late = Member::new();
    let joined = node.lobby.subscribe(Subscription::new(late.channel()));
    assert!(!joined.is_done());
    end(&nodes.group);
    let error = done(joined).unwrap_err();
    assert!(matches!(BrokerError::of(&error), Some(BrokerError::Closed)), "{error}");
}

#[test]
fn members_that_are_far_behind_delay_deliveries_and_miss_nothing() {
    let limits = HistoryLimits::new().messages(100_000);
    let nodes = Nodes::with(1, |lobby| lobby.history(limits));
    let node = &nodes.nodes[0];
    let mut member = Member::join(node);
    let messages = 20_000;
    node.publish_numbers(1..=messages);
    assert!(node.topics.metrics().delayed > 0, "more broadcasts wait than a group accepts");
    wait_until("everything arrives", || {
        nodes.advance(ms(10));
        member.lines().len() == messages
    });
    for (offset, line) in member.lines().iter().enumerate() {
        assert_eq!(*line, format!("{} {}", offset + 1, offset + 1));
    }
}

#[test]
fn a_node_that_was_stopped_has_no_authority_and_comes_back_as_another() {
    let nodes = Nodes::new(2);
    let [one, other] = &nodes.nodes[..] else { panic!("two nodes") };
    let ids = |node: &TestNode| node.topics.authority();
    let (first, second) = (ids(one).unwrap(), ids(other).unwrap());
    assert_eq!((first.name(), second.name()), ("a", "b"));
    for _ in 0..20 {
        nodes.advance(3 * SECOND);
    }
    assert_eq!((ids(one), ids(other)), (Some(first.clone()), Some(second)), "both renew their leases");
    one.broker.set_cut(true);
    nodes.advance(9 * SECOND);
    assert_eq!(ids(one), None, "its lease may be over by the clock of the store");
    for _ in 0..3 {
        nodes.advance(3 * SECOND);
    }
    one.broker.set_cut(false);
    for _ in 0..2 {
        nodes.advance(3 * SECOND);
    }
    let again = ids(one).expect("it has a lease again");
    assert_eq!(again.name(), "a");
    assert_ne!(again.incarnation(), first.incarnation());
    assert_eq!(one.topics.metrics().leases_lost, 1);
}

#[test]
fn a_node_whose_name_was_taken_has_no_authority_until_the_other_one_has_ended() {
    let nodes = Nodes::new(1);
    let start = || {
        let events = Journal::new();
        let recorded: Journal<LeaseEvent> = events.clone();
        let broker = Faulty::new(&nodes.store, nodes.group.next());
        let topics = Topics::builder(&nodes.group, broker.clone()).node("same");
        (topics.on_lease(move |event| recorded.push(event)).build().unwrap(), events, broker)
    };
    let (old, old_events, old_broker) = start();
    let first = old.authority().expect("it has a lease");
    let (new, new_events, _) = start();
    let second = new.authority().expect("a new process takes the name over");
    for _ in 0..20 {
        nodes.advance(3 * SECOND);
        assert_eq!((old.authority(), new.authority()), (None, Some(second.clone())));
    }
    assert_eq!((old.metrics().leases_taken, old.metrics().leases_lost), (1, 0));
    assert_eq!(new.metrics().lease_failures, 0, "the lease was never taken back");
    assert_eq!(old_broker.ended_leases(), 1, "a refused incarnation has nothing to end");
    done(new.close()).unwrap();
    nodes.advance(3 * SECOND);
    let again = old.authority().expect("the name is free");
    assert!(again != first && again != second);
    use LeaseEvent::{Begun, Taken};
    assert_eq!(old_events.all(), [Begun(first.clone()), Taken(first), Begun(again)]);
    assert_eq!(new_events.all(), [Begun(second)]);
}
