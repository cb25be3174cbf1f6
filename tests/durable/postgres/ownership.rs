//! Partitions, leases and epochs.

use super::stores::{
    Nodes, Sharing, changed, commit, end, for_each_kind_of_nodes, load, patiently, renew_until, renewed,
    start, timer,
};
use crate::support::wait::{ms, wait_until};
use netwheel::{
    Error,
    durable::{
        StoreError, TimerFilter,
        store::{Change, Outcome},
    },
};
use std::{collections::BTreeSet, time::Duration};

/// A lease that ends during the test, and one that does not.
const SHORT: Duration = ms(500);
const LONG: Duration = Duration::from_secs(60);

for_each_kind_of_nodes! {
    nodes_share_the_partitions
    partitions_of_a_silent_node_are_taken_over
    a_lease_that_has_ended_forbids_claims_and_not_ends
    partitions_with_runs_are_drained_first
    a_run_that_does_not_end_delays_a_partition_for_one_lease
    the_number_of_partitions_is_that_of_the_first_node
    settings_out_of_range_are_refused_with_their_values
}

fn nodes_share_the_partitions(nodes: &Nodes) {
    let mut first = nodes.node(LONG);
    let alone = renewed(&mut *first);
    assert_eq!(alone.partitions, (0..8).map(|partition| (partition, 1)).collect::<Vec<_>>());
    assert_eq!((alone.valid_for, alone.renew_after), (LONG / 2, Duration::from_secs(1)));

    // All are taken, until the first node notices the second one and gives the surplus back.
    let mut second = nodes.node(LONG);
    assert_eq!(renewed(&mut *second).partitions, []);
    let kept = renewed(&mut *first).partitions;
    let taken = renewed(&mut *second).partitions;
    assert_eq!((kept.len(), taken.len()), (4, 4));
    assert!(kept.iter().all(|(_, epoch)| *epoch == 1) && taken.iter().all(|(_, epoch)| *epoch == 2));
    let all: BTreeSet<u32> = kept.iter().chain(&taken).map(|(partition, _)| *partition).collect();
    assert_eq!(all.len(), 8);

    // With a third node, each gets at most three.
    let mut third = nodes.node(LONG);
    renewed(&mut *third);
    renewed(&mut *first);
    renewed(&mut *second);
    let third_lease = renewed(&mut *third);
    assert_eq!(renewed(&mut *first).partitions.len() + renewed(&mut *second).partitions.len(), 6);
    assert_eq!(third_lease.partitions.len(), 2);

    // What is released is taken over with a new epoch.
    first.release().unwrap();
    second.release().unwrap();
    let last = renewed(&mut *third);
    assert_eq!(last.partitions.len(), 8);
    for (partition, epoch) in kept {
        let (_, now) = last.partitions[partition as usize];
        assert!(now > epoch, "partition {partition} has epoch {now}");
    }
}

fn partitions_of_a_silent_node_are_taken_over(nodes: &Nodes) {
    let mut silent = nodes.node(SHORT);
    renewed(&mut *silent);
    let row = start(&mut *silent, timer(1));
    let other_row = start(&mut *silent, timer(2));
    // On a busy machine the starts may outlast the lease.
    wait_until("it is claimed", || {
        renewed(&mut *silent);
        matches!(commit(&mut *silent, Change::Claim { held: row.held() }), Outcome::Done(_))
    });

    let mut other = nodes.node(LONG);
    let lease = renew_until(&mut *other, 8);
    assert!(lease.partitions.iter().all(|(_, epoch)| *epoch == 2));
    let loaded = load(&mut *other);
    assert_eq!(loaded.iter().map(|row| row.epoch).collect::<Vec<_>>(), [2, 2]);

    // The silent node can neither claim, nor end, nor write.
    let mut changes = [
        Change::Claim { held: other_row.held() },
        Change::End {
            held: row.held(),
            next: None,
            effect: Some(Box::new(|_| panic!("the effect of a stale end"))),
        },
    ];
    for outcome in patiently(|| silent.commit(&mut changes, 0)) {
        assert!(matches!(outcome, Outcome::Refused(StoreError::StaleEpoch)), "{outcome:?}");
    }
    for change in [
        Change::Retry { held: row.held(), due: 5, error: String::new() },
        Change::DeadLetter { held: row.held(), next: None, error: String::new() },
        Change::SkipTo { held: row.held(), next: 9 },
    ] {
        let outcome = commit(&mut *silent, change);
        assert!(matches!(outcome, Outcome::Refused(StoreError::StaleEpoch)), "{outcome:?}");
    }
    assert_eq!(load(&mut *other), loaded);
    assert!(matches!(commit(&mut *other, end(loaded[0].held())), Outcome::Done(None)));
}

/// A node that was slow for a moment goes on, if no other one has taken over.
fn a_lease_that_has_ended_forbids_claims_and_not_ends(nodes: &Nodes) {
    let mut store = nodes.node(SHORT);
    renewed(&mut *store);
    changed(&mut *store, i64::MAX);
    let row = start(&mut *store, timer(1));
    let other = start(&mut *store, timer(2));
    wait_until("the lease is over", || {
        let claimed = commit(&mut *store, Change::Claim { held: other.held() });
        matches!(claimed, Outcome::Refused(StoreError::StaleEpoch))
    });
    assert!(matches!(commit(&mut *store, end(row.held())), Outcome::Done(None)));
    // The engine has dropped the refused timer, and gets it again with the renewed lease.
    assert_eq!(renewed(&mut *store).partitions[0], (0, 1));
    assert_eq!(changed(&mut *store, i64::MAX), [other]);
}

/// A partition is given back when the runs in it have ended, so that none is repeated.
fn partitions_with_runs_are_drained_first(nodes: &Nodes) {
    let mut busy = nodes.node(LONG);
    renewed(&mut *busy);
    let rows: Vec<_> = (0..16).map(|due| start(&mut *busy, timer(due))).collect();
    assert_eq!(rows.iter().map(|row| row.partition).collect::<BTreeSet<_>>().len(), 8);
    for row in &rows[..8] {
        assert!(matches!(commit(&mut *busy, Change::Claim { held: row.held() }), Outcome::Done(_)));
    }
    let mut other = nodes.node(LONG);
    renewed(&mut *other);
    let kept = renewed(&mut *busy).partitions;
    assert_eq!((kept.len(), renewed(&mut *other).partitions.len()), (4, 0));
    // A draining partition refuses claims and accepts ends.
    for row in &rows[8..] {
        let may_run = kept.contains(&(row.partition, row.epoch));
        let outcome = commit(&mut *busy, Change::Claim { held: row.held() });
        assert_eq!(matches!(outcome, Outcome::Done(_)), may_run, "{outcome:?}");
    }
    for row in &rows[..8] {
        assert!(matches!(commit(&mut *busy, end(row.held())), Outcome::Done(None)));
    }
    assert_eq!(renewed(&mut *busy).partitions, kept);
    assert_eq!(renewed(&mut *other).partitions.len(), 4);
    assert_eq!(load(&mut *busy).len() + load(&mut *other).len(), 8);
}

fn a_run_that_does_not_end_delays_a_partition_for_one_lease(nodes: &Nodes) {
    let mut stuck = nodes.node(SHORT);
    renewed(&mut *stuck);
    let rows: Vec<_> = (0..8).map(|due| start(&mut *stuck, timer(due))).collect();
    for row in &rows {
        commit(&mut *stuck, Change::Claim { held: row.held() });
    }
    let mut other = nodes.node(LONG);
    let mut lease = renewed(&mut *other);
    while lease.partitions.len() < 4 {
        renewed(&mut *stuck);
        lease = renewed(&mut *other);
    }
    let refused = rows.iter().filter(|row| lease.partitions.contains(&(row.partition, 2))).count();
    assert!(refused >= 4);
}

/// With another number, timers would be in partitions without an owner.
fn the_number_of_partitions_is_that_of_the_first_node(nodes: &Nodes) {
    let with = |partitions| nodes.node_with(&Sharing { partitions, ..Sharing::default() }).unwrap();
    let mut first = with(8);
    renewed(&mut *first);
    let rows: Vec<_> = (0..16).map(|due| start(&mut *first, timer(due))).collect();
    assert_eq!(rows.iter().map(|row| row.partition).collect::<BTreeSet<_>>(), (0..8).collect());
    first.release().unwrap();
    drop(first);
    for partitions in [3, 16, 1] {
        let mut store = with(partitions);
        let lease = renewed(&mut *store);
        assert_eq!(
            lease.partitions.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            (0..8).collect::<Vec<_>>()
        );
        assert_eq!(load(&mut *store).len(), 16, "opened with {partitions} partitions");
        assert!(start(&mut *store, timer(99)).partition < 8);
        let mut other = with(partitions + 1);
        assert_eq!(renewed(&mut *other).partitions, []);
        assert_eq!(renewed(&mut *store).partitions.len(), 4, "half of those that are stored");
        for store in [&mut store, &mut other] {
            store.release().unwrap();
        }
        let last = store.list(&TimerFilter::new()).unwrap().last().unwrap().id;
        commit(&mut *store, Change::Cancel(last));
    }
}

fn settings_out_of_range_are_refused_with_their_values(nodes: &Nodes) {
    let usual = Sharing::default();
    let lease = |lease| Sharing { lease, request_timeout: ms(100), drain_timeout: lease, ..usual };
    for (settings, setting, value) in [
        (Sharing { partitions: 0, ..usual }, "partitions", "0"),
        (Sharing { partitions: 4097, ..usual }, "partitions", "4097"),
        (lease(Duration::ZERO), "lease", "0ns"),
        (lease(ms(299)), "lease", "299ms"),
        (lease(ms(600_001)), "lease", "600.001s"),
        (lease(Duration::MAX), "lease", "18446744073709551615.999999999s"),
        (Sharing { request_timeout: ms(49), ..usual }, "request_timeout", "49ms"),
        (Sharing { request_timeout: ms(60_001), ..usual }, "request_timeout", "60.001s"),
        (Sharing { drain_timeout: ms(600_001), ..usual }, "drain_timeout", "600.001s"),
    ] {
        match nodes.node_with(&settings) {
            Err(Error::Setting(refused)) => {
                assert_eq!((refused.setting(), refused.value()), (setting, value));
                assert!(!refused.allowed().is_empty());
            }
            Err(other) => panic!("{setting}: {other}"),
            Ok(_) => panic!("{setting} {value} is accepted"),
        }
    }
    let least = Sharing { partitions: 1, lease: ms(300), request_timeout: ms(50), drain_timeout: ms(0) };
    let most = Duration::from_secs(600);
    let most = Sharing { partitions: 4096, lease: most, request_timeout: most, drain_timeout: most };
    for settings in [least, most] {
        // A busy server may take longer than the shortest time.
        let opened = nodes.node_with(&settings);
        assert!(!matches!(opened, Err(Error::Setting(_))), "{settings:?}: {:?}", opened.err());
    }
}
