//! Leases that a Redis has granted, without an answer that reaches the node.

use crate::{
    conformance::{Connection, Store},
    faulty::Faulty,
    support::{
        loops::{advance, manual_group, the_loop},
        wait::{SECOND, done, wait_until},
    },
};
use netwheel::broker::Topics;

/// The store grants a lease, ends it, and removes the entries of the node from all maps. It refuses
/// further entries of that incarnation, so the node must not begin with it again.
pub(super) fn a_lease_that_has_ended_unnoticed_is_not_begun_again(store: &dyn Store) {
    let (group, clock) = manual_group();
    let broker = Faulty::over(store.connect(), the_loop(&group));
    broker.lose_lease_answers(true);
    let topics = Topics::builder(&group, broker.clone()).node("a").build().unwrap();
    let failures = || topics.metrics().lease_failures;
    wait_until("the first answer is lost", || failures() == 1);

    let other = Connection::new(store);
    store.pass_for_leases(60 * SECOND);
    let ended = done(other.broker.end_lost_leases()).unwrap();
    assert!(matches!(&ended[..], [node] if node.name() == "a"), "{ended:?}");
    for lost in [2, 3] {
        advance(the_loop(&group), &clock, 3 * SECOND);
        wait_until("another answer is lost", || failures() == lost);
    }
    assert_eq!(topics.authority(), None);

    broker.lose_lease_answers(false);
    advance(the_loop(&group), &clock, 3 * SECOND);
    wait_until("the node has a lease", || topics.authority().is_some());
    let users = topics.map("users").open().unwrap();
    assert!(done(users.hold("ann", "here", None)).unwrap().is_some());
    assert!(!ended.contains(&topics.authority().unwrap()));
}
