//! The leases of nodes.

use super::{
    Store,
    maps::entries,
    recorder::{Connection, topic},
};
use crate::support::wait::done;
use netwheel::{
    Error, Result,
    broker::{
        BrokerError, NodeId, TopicName,
        store::{Changed, MapChange, MapUpdate, NodeLease, TopicChange},
    },
};
use std::time::Duration;

/// A lease that does not end during a test by itself.
const LONG: Duration = Duration::from_secs(3600);

/// A lease that [`Store::pass_for_leases`] ends.
const LEASE: Duration = Duration::from_secs(600);
const LONGER: Duration = Duration::from_secs(900);

fn node(name: &str, incarnation: u64) -> NodeId {
    NodeId::new(name, incarnation).unwrap()
}

fn begin(at: &Connection, node: &NodeId, duration: Duration) {
    done(at.broker.renew(NodeLease::begin(node.clone(), duration))).expect("the lease begins");
}

fn renew(at: &Connection, node: &NodeId) -> Result {
    done(at.broker.renew(NodeLease::renew(node.clone(), LEASE)))
}

fn set(at: &Connection, topic: &TopicName, key: &'static str, owner: &NodeId) -> Result<Changed> {
    let mut update = MapUpdate::new(topic.clone(), vec![MapChange::set(key, "here")]);
    update.owner = Some(owner.clone());
    done(at.broker.change(update))
}

fn begin_again(at: &Connection, node: &NodeId) -> Result {
    done(at.broker.renew(NodeLease::begin_again(node.clone(), LEASE)))
}

fn is_taken(error: Error) -> bool {
    BrokerError::of(&error) == Some(&BrokerError::LeaseTaken)
}

fn has_ended(error: Error) -> bool {
    BrokerError::of(&error) == Some(&BrokerError::LeaseEnded)
}

fn sweep(at: &Connection) -> Vec<NodeId> {
    done(at.broker.end_lost_leases()).expect("leases are checked")
}

pub(super) fn are_renewed_and_end(store: &dyn Store) {
    let (at, a) = (Connection::new(store), node("a", 1));
    assert!(renew(&at, &a).is_err_and(has_ended), "it has not begun");
    begin(&at, &a, LEASE);
    for _ in 0..3 {
        store.pass_for_leases(LEASE / 2);
        renew(&at, &a).expect("it is renewed");
        assert!(sweep(&at).is_empty());
    }
    store.pass_for_leases(LONGER);
    assert!(renew(&at, &a).is_err_and(has_ended));
    assert_eq!(sweep(&at), std::slice::from_ref(&a));
    assert!(sweep(&at).is_empty(), "it ends once");
    assert!(renew(&at, &a).is_err_and(has_ended));
}

pub(super) fn entries_vanish_with_their_owner(store: &dyn Store) {
    let (at, a, b) = (Connection::new(store), node("a", 1), node("b", 1));
    let (users, rooms) = (topic("users"), topic("rooms"));
    begin(&at, &a, LEASE);
    begin(&at, &b, LONG);
    set(&at, &users, "ann", &a).unwrap();
    set(&at, &users, "bob", &b).unwrap();
    set(&at, &rooms, "lobby", &a).unwrap();
    set(&at, &users, "cleo", &a).unwrap();
    set(&at, &users, "cleo", &b).unwrap();
    at.follow(&users);
    store.pass_for_leases(LONGER);
    assert_eq!(sweep(&at), [a]);
    let keys = |topic| entries(&at, topic).into_keys().collect::<Vec<_>>();
    assert_eq!(keys(&users), ["bob", "cleo"], "the newest owner counts");
    assert!(keys(&rooms).is_empty());
    let events = at.stored(&users, 1);
    let TopicChange::Entries(_, removed) = &events[0].change else { panic!("{events:?}") };
    assert_eq!((removed.len(), &removed[0].key[..], &removed[0].value), (1, &b"ann"[..], &None));
    let snapshot = done(at.broker.snapshot(&users, None)).unwrap();
    assert!(snapshot.entries.iter().all(|entry| entry.owner == Some(b.clone())));
}

pub(super) fn another_incarnation_takes_over(store: &dyn Store) {
    let (at, users) = (Connection::new(store), topic("users"));
    let (old, new) = (node("a", 1), node("a", 2));
    begin(&at, &old, LONG);
    set(&at, &users, "ann", &old).unwrap();
    begin(&at, &new, LONG);
    assert!(renew(&at, &old).is_err_and(is_taken));
    set(&at, &users, "bob", &new).unwrap();
    assert_eq!(sweep(&at), [old]);
    assert_eq!(entries(&at, &users).into_keys().collect::<Vec<_>>(), ["bob"]);
    renew(&at, &new).expect("it is the newest one");
}

pub(super) fn a_taken_one_is_not_taken_back(store: &dyn Store) {
    let (at, users) = (Connection::new(store), topic("users"));
    let [old, new, again] = [1, 2, 3].map(|incarnation| node("a", incarnation));
    begin(&at, &old, LONG);
    begin(&at, &new, LEASE);
    for _ in 0..2 {
        assert!(renew(&at, &old).is_err_and(is_taken));
        assert!(begin_again(&at, &again).is_err_and(is_taken));
        renew(&at, &new).expect("it keeps its lease");
        assert!(!sweep(&at).contains(&again), "it has nothing to remove");
    }
    set(&at, &users, "ann", &new).unwrap();
    store.pass_for_leases(LONGER);
    assert!(renew(&at, &old).is_err_and(has_ended), "nobody has the lease any more");
    for _ in 0..2 {
        begin_again(&at, &again).expect("a repeated request is not refused");
    }
    assert!(renew(&at, &new).is_err_and(is_taken));
    let mut ended = sweep(&at);
    ended.retain(|node| *node != old);
    assert_eq!(ended, [new]);
    assert!(entries(&at, &users).is_empty());
    renew(&at, &again).expect("it is renewed like any other");
    set(&at, &users, "ann", &again).expect("it may own entries, although it was refused before");
    done(at.broker.end_lease(&again)).unwrap();
    begin_again(&at, &node("a", 4)).expect("the lease is free at once");
}

pub(super) fn can_be_ended(store: &dyn Store) {
    let (at, users, a) = (Connection::new(store), topic("users"), node("a", 1));
    begin(&at, &a, LONG);
    set(&at, &users, "ann", &a).unwrap();
    for _ in 0..2 {
        done(at.broker.end_lease(&a)).unwrap();
        assert!(entries(&at, &users).is_empty());
        assert!(renew(&at, &a).is_err_and(has_ended));
    }
    done(at.broker.end_lease(&node("unknown", 1))).unwrap();
}

pub(super) fn a_node_without_one_owns_nothing(store: &dyn Store) {
    let (at, users, a) = (Connection::new(store), topic("users"), node("a", 1));
    // The time of the store, also if that is the real one.
    begin(&at, &a, Duration::from_secs(1));
    store.pass(Duration::from_millis(1500));
    sweep(&at);
    // Refused at once, or removed by the next sweep.
    if let Err(error) = set(&at, &users, "ann", &a) {
        assert!(has_ended(error));
    }
    sweep(&at);
    assert!(entries(&at, &users).is_empty(), "a node that was stopped leaves no ghost");
}
