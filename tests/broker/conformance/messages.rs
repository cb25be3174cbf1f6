//! Messages: their offsets, their history, their delivery.

use super::{
    Store,
    recorder::{Connection, offsets, texts, topic},
};
use crate::support::wait::done;
use bytes::Bytes;
use netwheel::broker::{
    HistoryLimits, TopicName,
    store::{BrokerEvent, Notification, Publication, ReadFrom, ReadRange},
};
use std::time::Duration;

pub(super) fn have_offsets_and_come_in_order(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    node.follow(&lobby);
    let positions = ["a", "b", "c"].map(|text| node.publish(&lobby, text).position);
    assert_eq!(positions.map(|position| position.offset), [1, 2, 3]);
    assert!(positions.iter().all(|position| position.epoch == positions[0].epoch));
    assert!((1..1 << 53).contains(&positions[0].epoch));
    let delivered = node.messages(&lobby, 3);
    assert_eq!(delivered.iter().map(|message| message.position).collect::<Vec<_>>(), positions);
    assert_eq!(texts(&delivered), ["a", "b", "c"]);
    assert_eq!(node.read_all(&lobby), delivered);
    assert_eq!(node.publish(&topic("other"), "x").position.offset, 1, "each topic has offsets of its own");
}

pub(super) fn every_node_receives_them(store: &dyn Store) {
    let nodes = [Connection::new(store), Connection::new(store), Connection::new(store)];
    let lobby = topic("lobby");
    nodes.iter().for_each(|node| node.follow(&lobby));
    for text in ["a", "b", "c"] {
        nodes.iter().for_each(|node| node.publish_all(&lobby, &[text]));
    }
    let first = nodes[0].messages(&lobby, 9);
    assert_eq!(offsets(&first), (1..=9).collect::<Vec<_>>());
    assert!(nodes.iter().all(|node| node.messages(&lobby, 9) == first));
    assert!(nodes.iter().all(|node| node.read_all(&lobby) == first));
}

pub(super) fn a_read_has_a_range(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    let read = |from| offsets(&node.read(&lobby, from).messages);
    assert!(read(ReadFrom::After(0)).is_empty() && read(ReadFrom::Last(5)).is_empty());
    for text in ["a", "b", "c", "d", "e"] {
        node.publish(&lobby, text);
    }
    assert_eq!(read(ReadFrom::After(2)), [3, 4, 5]);
    assert_eq!(read(ReadFrom::Last(2)), [4, 5]);
    assert_eq!(read(ReadFrom::Last(9)), [1, 2, 3, 4, 5]);
    assert!([ReadFrom::After(5), ReadFrom::After(6), ReadFrom::Last(0)].map(read).iter().all(Vec::is_empty));
    assert!(read(ReadFrom::After(u64::MAX)).is_empty());
    assert_eq!(read(ReadFrom::Last(u64::MAX)), [1, 2, 3, 4, 5]);
    let history = node.read(&lobby, ReadFrom::After(2));
    assert_eq!((history.oldest, history.top), (1, 5));
    assert_eq!(history.epochs.at(5), history.messages[2].position);

    let mut range = ReadRange::new(ReadFrom::After(1));
    range.max_messages = 2;
    let page = |range| offsets(&done(node.broker.read(&lobby, range)).unwrap().messages);
    assert_eq!(page(range), [2, 3]);
    (range.max_messages, range.max_bytes) = (9, 0);
    let first = page(range);
    assert!(!first.is_empty() && first[0] == 2, "at least one: {first:?}");
}

fn limited(topic: &TopicName, payload: impl Into<Bytes>, limits: HistoryLimits) -> Publication {
    let mut publication = Publication::new(topic.clone(), payload.into());
    publication.limits = limits;
    publication
}

pub(super) fn the_history_is_limited(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    let limits = HistoryLimits::new().messages(3).bytes(100);
    for _ in 0..5 {
        done(node.broker.publish(limited(&lobby, "ten bytes.", limits))).unwrap();
    }
    let history = node.read(&lobby, ReadFrom::After(0));
    assert_eq!((offsets(&history.messages), history.oldest, history.top), (vec![3, 4, 5], 3, 5));
    done(node.broker.publish(limited(&lobby, vec![b'x'; 85], limits))).unwrap();
    assert_eq!(offsets(&node.read_all(&lobby)), [5, 6], "95 bytes");
    done(node.broker.publish(limited(&lobby, "y", limits.messages(0)))).unwrap();
    let history = node.read(&lobby, ReadFrom::Last(9));
    assert_eq!((history.messages.len(), history.oldest, history.top), (0, 8, 7));
    assert_eq!(node.publish(&lobby, "z").position.offset, 8, "offsets go on");
}

pub(super) fn old_messages_are_removed(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    let limits = HistoryLimits::new().age(Duration::from_secs(1));
    let first = done(node.broker.publish(limited(&lobby, "a", limits))).unwrap();
    let (other, hour) = (topic("other"), limits.age(Duration::from_secs(3600)));
    done(node.broker.publish(limited(&other, "kept", hour))).unwrap();
    store.pass(Duration::from_millis(1500));
    assert_eq!(texts(&node.read_all(&other)), ["kept"]);
    let history = node.read(&lobby, ReadFrom::After(0));
    assert_eq!((history.messages.len(), history.oldest, history.top), (0, 2, 1));
    assert!(history.epochs.is_valid(first.position, history.top), "the metadata lives longer");
    let second = done(node.broker.publish(limited(&lobby, "b", limits))).unwrap();
    assert_eq!((second.position.epoch, second.position.offset), (first.position.epoch, 2));
}

pub(super) fn payloads_are_any_bytes(store: &dyn Store) {
    let (node, odd) = (Connection::new(store), topic("a {b}:c* \u{e4}\u{1f600}"));
    node.follow(&odd);
    let payloads = [Bytes::new(), Bytes::from_static(b"\0\r\n\xff"), Bytes::from(vec![b'x'; 200_000])];
    for payload in &payloads {
        done(node.broker.publish(Publication::new(odd.clone(), payload.clone()))).unwrap();
    }
    let delivered: Vec<Bytes> = node.messages(&odd, 3).into_iter().map(|message| message.payload).collect();
    assert!(delivered == payloads, "they are delivered as they were");
    let read: Vec<Bytes> = node.read_all(&odd).into_iter().map(|message| message.payload).collect();
    assert!(read == payloads, "they are read as they were");
}

pub(super) fn many_publications_keep_their_order(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    node.follow(&lobby);
    let publish = |n: usize| node.broker.publish(Publication::new(lobby.clone(), n.to_string().into()));
    let pending: Vec<_> = (0..500).map(publish).collect();
    for (n, published) in pending.into_iter().enumerate() {
        assert_eq!(done(published).unwrap().position.offset, n as u64 + 1);
    }
    let expected: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    assert_eq!(texts(&node.messages(&lobby, 500)), expected);
}

pub(super) fn notifications_are_not_stored(store: &dyn Store) {
    let (one, other, lobby) = (Connection::new(store), Connection::new(store), topic("lobby"));
    one.follow(&lobby);
    other.follow(&lobby);
    let mut notification = Notification::new(lobby.clone(), "typing".into());
    notification.key = Some(u64::MAX);
    one.broker.notify(notification.clone()).unwrap();
    for node in [&one, &other] {
        node.events.wait_until("the notification arrives", |events| {
            events.iter().any(|event| matches!(event, BrokerEvent::Notified(found) if *found == notification))
        });
    }
    let history = one.read(&lobby, ReadFrom::After(0));
    assert_eq!((history.messages.len(), history.top), (0, 0));
}
