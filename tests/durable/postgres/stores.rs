//! Stores of several nodes in one process.

use super::server::Server;
use crate::support::wait::wait_until;
use netwheel::durable::{
    PostgresStore, TimerStore,
    store::{Change, DueKey, Held, Lease, LoadRange, NewTimer, Outcome, TimerRow},
};
use std::time::Duration;

pub(crate) const NOW: i64 = 1_700_000_000_000;

/// Opens a store with eight partitions for one more node.
pub(crate) fn node(server: &Server, schema: &str, lease: Duration) -> PostgresStore {
    let builder = server.builder(schema).partitions(8).lease(lease).request_timeout(lease);
    let mut store = builder.open().unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    store
}

pub(crate) fn renewed(store: &mut PostgresStore) -> Lease {
    store.renew().unwrap().unwrap()
}

/// Renews until the node owns this number of partitions.
pub(crate) fn renew_until(store: &mut PostgresStore, partitions: usize) -> Lease {
    let mut lease = renewed(store);
    wait_until("the partitions are owned", || {
        let is_done = lease.partitions.len() == partitions;
        if !is_done {
            lease = renewed(store);
        }
        is_done
    });
    lease
}

pub(crate) fn timer(due: i64) -> NewTimer {
    NewTimer { topic: 0, due, idempotency_key: None, schedule: None, payload: b"null".to_vec() }
}

pub(crate) fn keyed(due: i64, key: &str) -> NewTimer {
    NewTimer { idempotency_key: Some(key.to_owned()), ..timer(due) }
}

pub(crate) fn periodic(due: i64) -> NewTimer {
    NewTimer { schedule: Some("every 5".to_owned()), ..keyed(due, "periodic") }
}

pub(crate) fn commit(store: &mut PostgresStore, change: Change) -> Outcome {
    store.commit(&mut [change], NOW).unwrap().remove(0)
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
    store.load(LoadRange { after: DueKey::FIRST, until: i64::MAX, limit: 1000 }).unwrap()
}
