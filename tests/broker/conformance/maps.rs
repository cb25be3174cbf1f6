//! Maps.

use super::{
    Store,
    recorder::{Connection, topic},
};
use crate::support::wait::done;
use bytes::Bytes;
use netwheel::broker::{
    BrokerError, TopicName,
    store::{Changed, EntryChange, MapChange, MapCondition, MapUpdate, ReadFrom, ReadRange, TopicChange},
};
use std::collections::BTreeMap;

pub(super) fn change(node: &Connection, topic: &TopicName, changes: Vec<MapChange>) -> Changed {
    done(node.broker.change(MapUpdate::new(topic.clone(), changes))).expect("the map is changed")
}

pub(super) fn entries(node: &Connection, topic: &TopicName) -> BTreeMap<Bytes, Bytes> {
    let snapshot = done(node.broker.snapshot(topic, None)).expect("the map is read");
    snapshot.entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

fn map(list: &[(&'static str, &'static str)]) -> BTreeMap<Bytes, Bytes> {
    list.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

pub(super) fn entries_are_set_and_removed(store: &dyn Store) {
    let (node, users) = (Connection::new(store), topic("users"));
    node.follow(&users);
    assert!(entries(&node, &users).is_empty());
    let first = change(&node, &users, vec![MapChange::set("ann", "1"), MapChange::set("bob", "2")]);
    assert_eq!((first.position.offset, &first.made[..]), (1, &[true, true][..]), "one offset for all");
    assert_eq!(entries(&node, &users), map(&[("ann", "1"), ("bob", "2")]));
    let second = change(&node, &users, vec![MapChange::remove("ann"), MapChange::remove("eve")]);
    assert_eq!((second.position.offset, &second.made[..]), (2, &[true, false][..]));
    let third = change(&node, &users, vec![MapChange::remove("eve")]);
    assert_eq!((third.position, &third.made[..]), (second.position, &[false][..]), "nothing has changed");
    let snapshot = done(node.broker.snapshot(&users, None)).unwrap();
    assert_eq!((snapshot.top, snapshot.epochs.at(2)), (2, second.position));
    assert_eq!((snapshot.entries.len(), snapshot.entries[0].position), (1, first.position));
    let changes: Vec<_> = node.stored(&users, 2).into_iter().map(|event| event.change).collect();
    let set = |key: &'static str, value: &'static str| EntryChange::new(key.into(), Some(value.into()));
    match &changes[..] {
        [TopicChange::Entries(at_1, set_1), TopicChange::Entries(at_2, set_2)] => {
            assert_eq!((*at_1, *at_2), (first.position, second.position));
            assert_eq!(set_1[..], [set("ann", "1"), set("bob", "2")]);
            assert_eq!(set_2[..], [EntryChange::new("ann".into(), None)]);
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn changes_have_conditions(store: &dyn Store) {
    let (node, users) = (Connection::new(store), topic("users"));
    let conditional = |change: MapChange, condition| {
        let mut change = change;
        change.condition = Some(condition);
        self::change(&node, &users, vec![change])
    };
    let first = conditional(MapChange::set("ann", "1"), MapCondition::Absent);
    assert_eq!(first.made, [true]);
    assert_eq!(conditional(MapChange::set("ann", "2"), MapCondition::Absent).made, [false]);
    let at = MapCondition::Unchanged(first.position);
    let second = conditional(MapChange::set("ann", "3"), at);
    assert_eq!(second.made, [true]);
    assert_eq!(conditional(MapChange::remove("ann"), at).made, [false], "it was set again");
    assert_eq!(conditional(MapChange::set("bob", "4"), at).made, [false], "there is none");
    assert_eq!(entries(&node, &users), map(&[("ann", "3")]));
    assert_eq!(conditional(MapChange::remove("ann"), MapCondition::Unchanged(second.position)).made, [true]);
    assert!(entries(&node, &users).is_empty());
}

pub(super) fn maps_are_limited(store: &dyn Store) {
    let (node, users) = (Connection::new(store), topic("users"));
    let limited = |changes| {
        let mut update = MapUpdate::new(users.clone(), changes);
        update.max_entries = 2;
        done(node.broker.change(update)).unwrap().made
    };
    let changes = ["a", "b", "c"].map(|key| MapChange::set(key, "1"));
    assert_eq!(limited(changes.into()), [true, true, false]);
    assert_eq!(limited(vec![MapChange::set("a", "2")]), [true], "entries that are there can change");
    assert_eq!(limited(vec![MapChange::remove("a"), MapChange::set("c", "3")]), [true, true]);
    assert_eq!(entries(&node, &users), map(&[("b", "1"), ("c", "3")]));
}

pub(super) fn a_topic_has_one_kind(store: &dyn Store) {
    let (node, users, lobby) = (Connection::new(store), topic("users"), topic("lobby"));
    change(&node, &users, vec![MapChange::set("ann", "1")]);
    node.publish(&lobby, "a");
    let is_wrong = |error: netwheel::Error| BrokerError::of(&error) == Some(&BrokerError::WrongKind);
    assert!(done(node.broker.read(&users, ReadRange::new(ReadFrom::Last(1)))).is_err_and(is_wrong));
    assert!(done(node.broker.snapshot(&lobby, None)).is_err_and(is_wrong));
    let update = MapUpdate::new(lobby.clone(), vec![MapChange::set("ann", "1")]);
    assert!(done(node.broker.change(update)).is_err_and(is_wrong));
    assert!(node.tops(&users, None).is_ok() && node.tops(&lobby, None).is_ok());
}
