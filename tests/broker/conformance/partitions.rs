//! Partitions: sequences, delivery, verification.

use super::{
    Store,
    recorder::{Connection, Recorder, topic},
};
use crate::support::{
    journal::Journal,
    wait::{done, wait_until},
};
use netwheel::broker::{
    BrokerError, TopicName,
    store::{
        BrokerEvent, BrokerStart, Notification, Partitions, Publication, ReadFrom, ReadRange, TopicSeen,
    },
};
use std::sync::Arc;

/// Returns topics of one partition.
fn neighbours(partitions: Partitions, number: usize) -> Vec<TopicName> {
    let first = partitions.of(&topic("room-0"));
    let rooms = (0..).map(|n| topic(&format!("room-{n}")));
    rooms.filter(|room| partitions.of(room) == first).take(number).collect()
}

pub(super) fn the_sequence_counts_events(store: &dyn Store) {
    let (node, rooms) = (Connection::new(store), neighbours(store.partitions(), 2));
    node.follow(&rooms[0]);
    let before = node.tops(&rooms[0], None).unwrap().sequence;
    for _ in 0..3 {
        rooms.iter().for_each(|room| node.publish_all(room, &["x"]));
    }
    let mut events = node.stored(&rooms[0], 3);
    events.extend(node.stored(&rooms[1], 3));
    events.sort_by_key(|event| event.sequence.number);
    let numbers: Vec<u64> = events.iter().map(|event| event.sequence.number).collect();
    assert_eq!(numbers, (1..=6).map(|n| before.number + n).collect::<Vec<_>>());
    assert!(events.iter().all(|event| event.sequence.generation == before.generation));
    let after = node.tops(&rooms[0], None).unwrap().sequence;
    assert_eq!((after.generation, after.number), (before.generation, before.number + 6));
    node.broker.notify(Notification::new(rooms[0].clone(), "x".into())).unwrap();
    assert_eq!(node.tops(&rooms[0], None).unwrap().sequence, after, "notifications have no sequence");
}

pub(super) fn only_followed_partitions_are_delivered(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    node.publish(&lobby, "before");
    node.follow(&lobby);
    node.publish(&lobby, "during");
    assert_eq!(node.stored(&lobby, 1).len(), 1);
    node.broker.follow(node.partition(&lobby), false);
    node.publish(&lobby, "not followed");
    node.events.take();
    node.broker.follow(node.partition(&lobby), true);
    node.events.wait_until("it follows", |events| {
        events.iter().any(|event| matches!(event, BrokerEvent::Following(_)))
    });
    node.publish(&lobby, "again");
    let payloads = |number| -> Vec<_> {
        node.messages(&lobby, number).into_iter().map(|message| message.payload).collect()
    };
    let mut arrived = payloads(1);
    if arrived[0] == "not followed" {
        // It was on its way: a server may learn later than the call that a partition was left.
        arrived = payloads(2);
        arrived.remove(0);
    }
    assert_eq!(arrived, ["again"]);
}

pub(super) fn tops_answers_in_the_order_of_the_question(store: &dyn Store) {
    let (node, rooms) = (Connection::new(store), neighbours(store.partitions(), 4));
    for (number, room) in rooms.iter().enumerate() {
        node.publish_all(room, &["x"; 3][..number]);
    }
    let asked: Vec<TopicSeen> = rooms.iter().rev().map(|room| TopicSeen::new(room.clone(), None)).collect();
    let partition = node.partition(&rooms[0]);
    let tops = done(node.broker.tops(partition, asked)).unwrap();
    assert_eq!(tops.topics.iter().map(|topic| topic.top).collect::<Vec<_>>(), [3, 2, 1, 0]);
    let nothing = done(node.broker.tops(partition, Vec::new())).unwrap();
    assert_eq!((nothing.topics.len(), nothing.sequence), (0, tops.sequence));
}

pub(super) fn a_closed_broker_refuses(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    let sink = Arc::new(Recorder(Journal::new()));
    let start = BrokerStart::new(store.partitions(), sink, store.clock(), 1);
    let again = node.broker.start(start).unwrap_err();
    assert_eq!(BrokerError::of(&again), Some(&BrokerError::InUse), "it is started once");
    node.publish(&lobby, "a");
    done(node.broker.close()).unwrap();
    let is_closed = |error: &netwheel::Error| BrokerError::of(error) == Some(&BrokerError::Closed);
    wait_until("publications are refused", || {
        done(node.broker.publish(Publication::new(lobby.clone(), "b".into()))).is_err_and(|e| is_closed(&e))
    });
    assert!(done(node.broker.read(&lobby, ReadRange::new(ReadFrom::Last(1)))).is_err_and(|e| is_closed(&e)));
    assert!(node.broker.notify(Notification::new(lobby, "c".into())).is_err_and(|e| is_closed(&e)));
    done(node.broker.close()).unwrap();
}
