//! The store in memory: its answers, its transactions, its faults and its crashes. The tests of
//! every store are in `postgres/contract.rs`.

#[cfg(feature = "rusqlite-040")]
mod agreement;
mod database;
mod disk;
mod power;
mod transactions;

use crate::new_timers::{timer, with};
use netwheel::durable::{
    MemoryDisk, MemoryStore, TimerStore,
    store::{Change, LoadRange, NewTimer, Outcome, TimerRow, TopicSet},
};

const NOW: i64 = 1_700_000_000_000;

/// Opens the store with the topic "topic".
fn open(disk: &MemoryDisk) -> MemoryStore {
    let mut store = disk.open().unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    store
}

#[track_caller]
fn start(store: &mut MemoryStore, timer: NewTimer) -> TimerRow {
    match store.commit(&mut [Change::Start(timer)], NOW).unwrap().remove(0) {
        Outcome::Started(row) => row,
        other => panic!("{other:?}"),
    }
}

fn load(store: &mut dyn TimerStore) -> Vec<TimerRow> {
    let range = with(LoadRange::new(TopicSet::ALL, i64::MAX), |range| range.limit = 100_000);
    store.load(range).unwrap().rows
}

fn dues(store: &mut dyn TimerStore) -> Vec<i64> {
    load(store).iter().map(|row| row.key.due).collect()
}
