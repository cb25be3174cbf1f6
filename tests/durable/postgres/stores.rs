//! Stores of several nodes in one process.

use super::server::Server;
pub(crate) use crate::new_timers::{keyed, timer, with};
use crate::support::wait::{PATIENCE, wait_until};
use netwheel::durable::{
    MemoryDatabase, PostgresStore, StoreError, TimerStore,
    store::{Change, Held, Lease, LoadRange, NewTimer, Outcome, TimerRow, TopicSet},
};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

pub(crate) const NOW: i64 = 1_700_000_000_000;

/// Opens a store with eight partitions for one more node.
pub(crate) fn node(server: &Server, schema: &str, lease: Duration) -> PostgresStore {
    let builder = server.builder(schema).partitions(8).lease(lease).request_timeout(lease);
    let mut store = builder.open().unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    store
}

/// The settings that all stores of several nodes have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    pub(crate) partitions: u32,
    pub(crate) lease: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) drain_timeout: Duration,
}

impl Default for Sharing {
    fn default() -> Self {
        let lease = Duration::from_secs(60);
        Sharing { partitions: 8, lease, request_timeout: lease, drain_timeout: lease }
    }
}

/// Where several nodes open stores.
pub(crate) enum Nodes {
    Postgres(&'static Server, &'static str),
    Memory(MemoryDatabase),
}

impl Nodes {
    /// Opens a store with eight partitions for one more node.
    pub(crate) fn node(&self, lease: Duration) -> Box<dyn TimerStore> {
        let all = Sharing { partitions: 8, lease, request_timeout: lease, drain_timeout: lease };
        self.node_with(&all).unwrap()
    }

    /// Opens a store for one more node, or returns the error.
    pub(crate) fn node_with(&self, settings: &Sharing) -> netwheel::Result<Box<dyn TimerStore>> {
        let Sharing { partitions, lease, request_timeout, drain_timeout } = *settings;
        let mut store: Box<dyn TimerStore> = match self {
            Nodes::Postgres(server, schema) => {
                let builder = server.builder(schema).partitions(partitions).lease(lease);
                Box::new(builder.request_timeout(request_timeout).drain_timeout(drain_timeout).open()?)
            }
            Nodes::Memory(database) => {
                let database = database.clone().partitions(partitions).lease(lease);
                Box::new(database.request_timeout(request_timeout).drain_timeout(drain_timeout).open()?)
            }
        };
        store.attach(&["topic".to_owned()])?;
        Ok(store)
    }
}

/// Defines each test for both kinds of stores with several nodes.
macro_rules! for_each_kind_of_nodes {
    ($($name:ident)*) => {
        mod postgres {
            use super::super::{server::server, stores::Nodes};
            $(#[test] fn $name() {
                if let Some(server) = server() {
                    super::$name(&Nodes::Postgres(server, concat!("nodes_", stringify!($name))));
                }
            })*
        }
        mod memory {
            use super::super::stores::Nodes;
            $(#[test] fn $name() {
                super::$name(&Nodes::Memory(netwheel::durable::MemoryDatabase::new()));
            })*
        }
    };
}
pub(crate) use for_each_kind_of_nodes;

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
pub(crate) fn renewed(store: &mut (impl TimerStore + ?Sized)) -> Lease {
    patiently(|| store.renew(&BTreeSet::new())).unwrap()
}

/// Renews until the node owns this number of partitions.
#[track_caller]
pub(crate) fn renew_until(store: &mut (impl TimerStore + ?Sized), partitions: usize) -> Lease {
    let mut lease = renewed(store);
    wait_until(&format!("a lease of {partitions} partitions"), || {
        let is_met = lease.partitions.len() == partitions;
        if !is_met {
            lease = renewed(store);
        }
        is_met
    });
    lease
}

pub(crate) fn periodic(due: i64) -> NewTimer {
    with(keyed(due, "periodic"), |timer| timer.schedule = Some("every 5".to_owned()))
}

#[track_caller]
pub(crate) fn commit(store: &mut (impl TimerStore + ?Sized), change: Change) -> Outcome {
    let mut changes = [change];
    patiently(|| store.commit(&mut changes, NOW)).remove(0)
}

#[track_caller]
pub(crate) fn start(store: &mut (impl TimerStore + ?Sized), timer: NewTimer) -> TimerRow {
    match commit(store, Change::Start(timer)) {
        Outcome::Started(row) => row,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn end(held: Held) -> Change {
    Change::End { held, next: None, effect: None }
}

pub(crate) fn load(store: &mut (impl TimerStore + ?Sized)) -> Vec<TimerRow> {
    let range = with(LoadRange::new(TopicSet::ALL, i64::MAX), |range| range.limit = 1000);
    patiently(|| store.load(range)).rows
}

/// Returns timers that others have changed since the last call.
#[track_caller]
pub(crate) fn changed(store: &mut (impl TimerStore + ?Sized), until: i64) -> Vec<TimerRow> {
    let mut rows = Vec::new();
    loop {
        let loaded = patiently(|| store.changed_by_others(until, usize::MAX));
        rows.extend(loaded.rows);
        if loaded.is_complete {
            return rows;
        }
    }
}
