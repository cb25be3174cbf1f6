//! Crashes of a database: the timers that its nodes load again.

use super::{NOW, dues, timer};
use netwheel::durable::{
    MemoryDatabase, MemoryStore, TimerStore,
    store::{Change, Lease, NewTimer, Outcome, TimerRow},
};
use std::collections::BTreeSet;

fn node(database: &MemoryDatabase) -> MemoryStore {
    let mut store = database.open().unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    store
}

fn renewed(store: &mut MemoryStore) -> Lease {
    store.renew(&BTreeSet::new()).unwrap().unwrap()
}

#[track_caller]
fn start(store: &mut MemoryStore, timer: NewTimer) -> TimerRow {
    match store.commit(&mut [Change::Start(timer)], NOW).unwrap().remove(0) {
        Outcome::Started(row) => row,
        other => panic!("{other:?}"),
    }
}

fn end(store: &mut MemoryStore, row: &TimerRow) {
    let end = Change::End { held: row.held(), next: None, effect: None };
    assert!(matches!(store.commit(&mut [end], NOW).unwrap()[..], [Outcome::Done(None)]));
}

fn found(store: &mut MemoryStore) -> Vec<i64> {
    store.changed_by_others(i64::MAX, usize::MAX).unwrap().rows.iter().map(|row| row.key.due).collect()
}

/// Models a failover to a standby that lacks the last transactions. Changes of other nodes do not
/// show the loss, because no node has made such a change.
#[test]
fn what_a_crash_has_lost_is_found_by_loading_again() {
    let database = MemoryDatabase::new().partitions(8);
    let [mut owner, mut other] = [(); 2].map(|()| node(&database));
    renewed(&mut owner);
    found(&mut owner);
    let [ended, kept] = [1, 2].map(|due| start(&mut owner, timer(due)));
    // From here on nothing is synced.
    database.disk().sync_every(100).unwrap();
    end(&mut owner, &ended);
    start(&mut owner, timer(3));
    let lost = (0..).find(|seed| {
        // The first seed that loses both.
        fastrand::Rng::with_seed(*seed).usize(..=2) == 0
    });
    assert_eq!(database.disk().crash(lost.unwrap()), 2);
    let lease = renewed(&mut owner);
    assert!(lease.needs_reload);
    assert_eq!(lease.partitions.len(), 8, "the lease was synced");
    assert_eq!(found(&mut owner), Vec::<i64>::new(), "what is loaded has changed before");
    assert_eq!(dues(&mut owner), [1, 2]);
    end(&mut owner, &kept);
    assert!(!renewed(&mut owner).needs_reload, "once");
    // Later changes of others are found, with the number of the lost timer.
    let again = start(&mut other, timer(7));
    assert_eq!(again.key.id.get(), 3);
    assert_eq!(found(&mut owner), [7]);
}

/// Takeovers that are lost leave the partitions to the next node that takes them over.
#[test]
fn a_lost_takeover_ends_the_lease_of_its_node() {
    let database = MemoryDatabase::new().partitions(8);
    let mut owner = node(&database);
    database.disk().sync_every(100).unwrap();
    assert_eq!(renewed(&mut owner).partitions.len(), 8);
    let row = start(&mut owner, timer(1));
    let all = (0..).find(|seed| fastrand::Rng::with_seed(*seed).usize(..=2) == 0).unwrap();
    assert_eq!(database.disk().crash(all), 2);
    let mut other = node(&database);
    assert_eq!(renewed(&mut other).partitions.len(), 8);
    let claim = Change::Claim { held: row.held() };
    let refused = owner.commit(&mut [claim], NOW).unwrap().remove(0);
    assert!(matches!(refused, Outcome::Missing), "{refused:?}");
    let lease = renewed(&mut owner);
    assert!(lease.needs_reload && lease.partitions.is_empty(), "{lease:?}");
}
