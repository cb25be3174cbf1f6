//! Epochs and positions.

use super::{
    Store,
    recorder::{Connection, topic},
};
use crate::support::wait::done;
use netwheel::broker::{
    Position, TopicName,
    store::{MapChange, MapUpdate, ReadFrom, ReadRange, TopicChange},
};

pub(super) fn an_empty_topic_has_a_position(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    let history = node.read(&lobby, ReadFrom::Last(0));
    assert_eq!((history.top, history.oldest, history.epochs.as_slice().len()), (0, 1, 1));
    let start = history.epochs.at(0);
    assert_eq!(node.publish(&lobby, "a").position, Position::new(start.epoch, 1), "the epoch stays");
    let tops = node.tops(&lobby, Some(start)).unwrap();
    assert!(tops.topics[0].epochs.is_valid(start, tops.topics[0].top));
}

pub(super) fn a_position_ahead_of_the_top_begins_an_epoch(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    node.follow(&lobby);
    let first = node.publish(&lobby, "a").position;
    let lost = Position::new(first.epoch, 3);
    let next = node.publish_seen(&lobby, "b", lost);
    assert_eq!(next.offset, 2);
    assert_ne!(next.epoch, first.epoch);
    let history = node.read(&lobby, ReadFrom::After(0));
    assert!(history.epochs.is_valid(first, 2) && history.epochs.is_valid(next, 2));
    assert!(!history.epochs.is_valid(lost, 2));
    for text in ["c", "d"] {
        assert_eq!(node.publish_seen(&lobby, text, lost).epoch, next.epoch, "the loss is recorded once");
    }
    let history = node.read(&lobby, ReadFrom::After(0));
    assert!(!history.epochs.is_valid(lost, history.top), "also when the topic has grown beyond it");
    assert_eq!(history.messages[0].position, first);
    assert_eq!(history.messages[1].position, next);
}

pub(super) fn every_operation_compares_the_position(store: &dyn Store) {
    let node = Connection::new(store);
    let check = |name: &str, map: bool, operation: &dyn Fn(&TopicName, Position)| {
        let name = topic(name);
        node.follow(&name);
        let top = if map {
            let update = MapUpdate::new(name.clone(), vec![MapChange::set("k", "v")]);
            done(node.broker.change(update)).unwrap().position
        } else {
            node.publish(&name, "a").position
        };
        operation(&name, Position::new(top.epoch, 9));
        let tops = node.tops(&name, None).unwrap();
        assert_ne!(tops.topics[0].epochs.newest().id, top.epoch, "{name}");
        assert!(map || tops.topics[0].epochs.is_valid(top, tops.topics[0].top), "{name}");
        let events = node.stored(&name, 2);
        match &events[1].change {
            TopicChange::EpochBegan(position) => {
                assert_eq!(*position, Position::new(tops.topics[0].epochs.newest().id, 1), "{name}");
            }
            TopicChange::Entries(position, _) => assert_ne!(position.epoch, top.epoch),
            other => panic!("{name}: {other:?}"),
        }
    };
    check("by-tops", false, &|name, seen| drop(node.tops(name, Some(seen)).unwrap()));
    check("by-read", false, &|name, seen| {
        let mut range = ReadRange::new(ReadFrom::Last(0));
        range.seen = Some(seen);
        let history = done(node.broker.read(name, range)).unwrap();
        assert!(!history.epochs.is_valid(seen, history.top));
    });
    check("by-snapshot", true, &|name, seen| {
        let snapshot = done(node.broker.snapshot(name, Some(seen))).unwrap();
        assert!(!snapshot.epochs.is_valid(seen, snapshot.top));
    });
    check("by-change", true, &|name, seen| {
        let mut update = MapUpdate::new(name.clone(), vec![MapChange::set("k", "w")]);
        update.seen = Some(seen);
        assert_ne!(done(node.broker.change(update)).unwrap().position.epoch, seen.epoch);
    });
}

pub(super) fn other_positions_begin_no_epoch(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    let first = node.publish(&lobby, "a").position;
    let unknown = if first.epoch == 1 { 2 } else { 1 };
    for seen in [first, Position::new(first.epoch, 0), Position::new(unknown, 99)] {
        node.tops(&lobby, Some(seen)).unwrap();
    }
    let tops = node.tops(&lobby, None).unwrap();
    assert_eq!((tops.topics[0].top, tops.topics[0].epochs.as_slice().len()), (1, 1));
}
