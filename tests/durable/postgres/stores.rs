//! Stores of several nodes in one process.

use super::server::Server;
pub(crate) use crate::new_timers::{keyed, timer};
use crate::support::wait::PATIENCE;
use netwheel::durable::{
    PostgresStore, StoreError, TimerStore,
    store::{Change, DueKey, Held, Lease, LoadRange, NewTimer, Outcome, TimerRow, TopicSet},
};
use std::time::{Duration, Instant};

pub(crate) const NOW: i64 = 1_700_000_000_000;

/// Opens a store with eight partitions for one more node.
pub(crate) fn node(server: &Server, schema: &str, lease: Duration) -> PostgresStore {
    let builder = server.builder(schema).partitions(8).lease(lease).request_timeout(lease);
    let mut store = builder.open().unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    store
}

/// Repeats an operation while the server is too busy, as the engine does.
#[track_caller]
pub(crate) fn patiently<T>(mut operation: impl FnMut() -> Result<T, StoreError>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match operation() {
            Ok(done) => return done,
            Err(error) => assert!(error.is_transient() && Instant::now() < end, "{error}"),
        }
    }
}

#[track_caller]
pub(crate) fn renewed(store: &mut PostgresStore) -> Lease {
    patiently(|| store.renew()).unwrap()
}

/// Renews until the node owns this number of partitions.
#[track_caller]
pub(crate) fn renew_until(store: &mut PostgresStore, partitions: usize) -> Lease {
    let end = Instant::now() + PATIENCE;
    loop {
        let lease = renewed(store);
        if lease.partitions.len() == partitions {
            return lease;
        }
        assert!(Instant::now() < end, "{lease:?}");
        std::thread::yield_now();
    }
}

pub(crate) fn periodic(due: i64) -> NewTimer {
    NewTimer { schedule: Some("every 5".to_owned()), ..keyed(due, "periodic") }
}

#[track_caller]
pub(crate) fn commit(store: &mut PostgresStore, change: Change) -> Outcome {
    let mut changes = [change];
    patiently(|| store.commit(&mut changes, NOW)).remove(0)
}

#[track_caller]
pub(crate) fn start(store: &mut PostgresStore, timer: NewTimer) -> TimerRow {
    match commit(store, Change::Start(timer)) {
        Outcome::Started(row) => row,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn end(held: Held) -> Change {
    Change::End { held, next: None, effect: None }
}

pub(crate) fn load(store: &mut PostgresStore) -> Vec<TimerRow> {
    let range = LoadRange {
        topics: TopicSet::ALL,
        after: DueKey::FIRST,
        until: i64::MAX,
        limit: 1000,
        max_bytes: usize::MAX,
    };
    patiently(|| store.load(range)).rows
}

/// Returns timers that others have changed since the last call.
#[track_caller]
pub(crate) fn changed(store: &mut PostgresStore, until: i64) -> Vec<TimerRow> {
    let mut rows = Vec::new();
    loop {
        let loaded = patiently(|| store.changed_by_others(until, usize::MAX));
        rows.extend(loaded.rows);
        if loaded.is_complete {
            return rows;
        }
    }
}
