//! The disk: its lock, its faults, and its state after a crash.

use super::{NOW, dues, load, open, start, timer};
use netwheel::durable::{
    MemoryDisk, MemoryTransaction, StoreError, TimerStore,
    store::{Change, Effect},
};
use std::collections::BTreeSet;

#[test]
fn one_store_is_open_at_a_time() {
    let disk = MemoryDisk::new();
    let store = open(&disk);
    assert!(matches!(disk.clone().open().unwrap_err(), StoreError::InUse));
    drop(store);
    drop(open(&disk));
}

#[test]
fn what_was_stored_is_there_for_the_next_store() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk);
    let row = start(&mut store, timer(7));
    drop(store);
    let mut store = disk.open().unwrap();
    let counts = store.attach(&["other".to_owned(), "topic".to_owned()]).unwrap();
    assert_eq!(counts.iter().map(|topic| topic.pending).collect::<Vec<_>>(), [0, 1]);
    let loaded = load(&mut store);
    assert_eq!(loaded[0].key, row.key);
    assert_eq!(loaded[0].topic, 1, "the index in the new list");
}

#[test]
fn a_store_that_was_not_released_was_interrupted() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk);
    assert!(!store.was_interrupted());
    load(&mut store);
    drop(store);
    let mut store = open(&disk);
    assert!(store.was_interrupted());
    load(&mut store);
    store.release().unwrap();
    drop(store);
    assert!(!open(&disk).was_interrupted());
}

#[test]
fn a_crash_loses_nothing_by_default_and_the_open_store_fails() {
    let disk = MemoryDisk::new();
    for seed in 0..20 {
        let mut store = open(&disk);
        start(&mut store, timer(seed));
        assert_eq!(disk.crash(seed.unsigned_abs()), 0);
        let error = store.commit(&mut [Change::Start(timer(100))], NOW).unwrap_err();
        assert!(!error.is_transient(), "{error}");
        assert!(store.counts().is_err());
        let mut next = open(&disk);
        drop(store);
        assert!(matches!(disk.open().unwrap_err(), StoreError::InUse), "the old store is not the open one");
        assert_eq!(dues(&mut next), (0..=seed).collect::<Vec<_>>());
    }
}

#[test]
fn a_crash_without_syncs_keeps_the_first_transactions() {
    let mut kept = BTreeSet::new();
    for seed in 0..200 {
        let disk = MemoryDisk::new();
        let mut store = open(&disk);
        disk.sync_every(8).unwrap();
        for due in 0..11 {
            // Each transaction is there as a whole, or not at all.
            let mut changes = [Change::Start(timer(due)), Change::Start(timer(1000 + due))];
            store.commit(&mut changes, NOW).unwrap();
        }
        let lost = disk.crash(seed);
        let mut expected: Vec<i64> = (0..11 - lost as i64).collect();
        expected.extend((0..11 - lost as i64).map(|due| 1000 + due));
        let mut store = open(&disk);
        assert_eq!(dues(&mut store), expected, "seed {seed}");
        assert_eq!(store.counts().unwrap()[0].pending, 2 * (11 - lost as u64));
        kept.insert(11 - lost);
    }
    assert_eq!(kept, (8..=11).collect(), "the commits up to the last sync stay");
}

/// The id of a lost timer is given to another one, as a database does.
#[test]
fn the_same_seed_gives_the_same_crash() {
    let play = || {
        let disk = MemoryDisk::new();
        disk.sync_every(100).unwrap();
        let mut store = open(&disk);
        (0..50).for_each(|due| drop(start(&mut store, timer(due))));
        let lost = disk.crash(42);
        let mut store = open(&disk);
        (lost, start(&mut store, timer(0)).key.id, load(&mut store))
    };
    assert_eq!(play(), play());
}

#[test]
fn commits_fail_as_often_as_asked() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk);
    disk.fail_commits(2);
    for _ in 0..2 {
        let error = store.commit(&mut [Change::Start(timer(1))], NOW).unwrap_err();
        assert!(matches!(error, StoreError::Busy(_)), "{error}");
    }
    assert_eq!(dues(&mut store), Vec::<i64>::new());
    start(&mut store, timer(1));
    assert_eq!(dues(&mut store), [1]);
}

#[test]
fn a_full_disk_stores_nothing_and_can_be_read() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk);
    let row = start(&mut store, timer(1));
    load(&mut store);
    disk.set_full(true);
    let before = disk.commits();
    let mut put: Effect = Box::new(|transaction| {
        transaction.connection::<MemoryTransaction>()?.put("row", b"value");
        Ok(())
    });
    let mut changes = [Change::Start(timer(2)), Change::Cancel(row.key.id)];
    let errors = [store.commit(&mut changes, NOW).unwrap_err(), store.transaction(&mut put).unwrap_err()];
    assert!(errors.iter().all(|error| matches!(error, StoreError::DiskFull)), "{errors:?}");
    assert_eq!((dues(&mut store), disk.row("row"), disk.commits()), (vec![1], None, before));
    store.release().unwrap();
    disk.set_full(false);
    store.transaction(&mut put).unwrap();
    assert_eq!(disk.row("row").as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_number_of_commits_without_a_sync_is_limited() {
    let disk = MemoryDisk::new();
    for commits in [0, MemoryDisk::MAX_UNSYNCED + 1] {
        let error = disk.sync_every(commits).unwrap_err();
        assert!(error.to_string().contains(&commits.to_string()), "{error}");
    }
    disk.sync_every(MemoryDisk::MAX_UNSYNCED).unwrap();
}
