//! `MemoryStore`: timers in memory, on a disk that can crash.
//!
//! Owns: the rules of the changes and queries, with the same answers as the SQLite store. Does not
//! own the stored data: the [`MemoryDisk`] does, which outlives the store. All maps are ordered,
//! and there are no random numbers. A store of one node has no clock: its caller passes the time. A
//! store of several nodes has that of its database, for leases and for the engine.
//!
//! Runs on the store's thread. A lock protects the disk, because the test holds a handle to it.

mod changes;
mod database;
mod disk;
mod lent_tables;
mod reads;
mod shared;
mod starts;
mod tables;
mod transaction;
mod upkeep;

pub use database::MemoryDatabase;
pub use disk::MemoryDisk;
pub use transaction::MemoryTransaction;

use super::{
    TimerStore,
    change::{Change, LoadRange, Loaded, Outcome},
    dead_letters::DeadLetters,
    error::StoreError,
    lease::{ClockReading, Lease},
    listing::{TimerFilter, TimerInfo, TopicCounts},
    maintenance::BackupWork,
    row::{DueKey, TimerRow},
    start_in::Starter,
    transaction::{Effect, StoreTransaction},
};
use crate::machine::{self, Route};
use changes::MemoryBatch;
use disk::OperationKind;
use shared::MemorySession;
use starts::MemoryStarts;
use std::{
    collections::{BTreeSet, VecDeque},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tables::{Tables, View, Write};

/// How long the key of an ended timer is remembered, unless set otherwise.
const KEY_MEMORY: Duration = Duration::from_secs(24 * 3600);

/// The largest number of timers in an answer about starts of the program.
const STARTS_LIMIT: usize = 1024;

/// A store of timers in memory, for tests of programs. Opened by [`MemoryDisk::open`], which has an
/// example.
///
/// It behaves like `SqliteStore`, except for the program's own writes: these are rows of a
/// [`MemoryTransaction`]. What was stored stays on the [`MemoryDisk`] when the store is dropped.
#[derive(Debug)]
pub struct MemoryStore {
    disk: MemoryDisk,
    /// The number of this store on its disk.
    number: u64,
    /// The number of each attached topic.
    topics: Vec<usize>,
    key_memory: Duration,
    was_interrupted: bool,
    /// Whether the disk says that timers fire.
    is_noted_open: bool,
    /// Timers that transactions of the program have started, and that were not looked for.
    program_starts: VecDeque<i64>,
    medium: machine::Disk,
    /// The session with the database. `None` in a store of one node.
    session: Option<Box<MemorySession>>,
}

impl MemoryStore {
    fn new(disk: MemoryDisk, number: u64, medium: machine::Disk) -> Self {
        MemoryStore {
            disk,
            number,
            topics: Vec::new(),
            key_memory: KEY_MEMORY,
            was_interrupted: false,
            is_noted_open: false,
            program_starts: VecDeque::new(),
            medium,
            session: None,
        }
    }

    /// Sets how long the idempotency key of an ended timer is remembered. 24 h by default.
    pub fn remember_keys(mut self, time: Duration) -> Self {
        self.key_memory = time;
        self
    }

    /// Calls `work` in a transaction, and commits it if the work succeeds.
    fn transact<T>(
        &mut self,
        kind: OperationKind,
        work: impl FnOnce(&mut MemoryTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.session.is_some() {
            return self.request(|disk, number| disk.transact(number, kind, work)).map(|(value, _)| value);
        }
        self.medium.write().map_err(disk_error)?;
        let (value, started) = self.disk.transact(self.number, kind, work)?;
        if self.medium.needs_sync() {
            self.sync()?;
        }
        self.program_starts.extend(started);
        Ok(value)
    }

    /// Syncs the transactions, in a simulation. If the sync fails, some of them may be lost.
    fn sync(&self) -> Result<(), StoreError> {
        if let Err(error) = self.medium.sync() {
            self.disk.crash(self.medium.seed());
            return Err(disk_error(error));
        }
        self.disk.synced(self.number)
    }

    /// Calls `read` with the tables.
    fn read<T>(&mut self, read: impl FnOnce(&Tables) -> T) -> Result<T, StoreError> {
        self.medium.read();
        self.request(|disk, number| disk.read(number, read))
    }

    /// Calls `read` with the tables, and which of the timers are this store's.
    fn read_own<T>(&mut self, read: impl FnOnce(&Tables, View<'_>) -> T) -> Result<T, StoreError> {
        let topics = self.topics.clone();
        let ownership = self.session.as_ref().map(|session| session.member.ownership.clone());
        self.read(|tables| read(tables, View { topics: &topics, ownership: ownership.as_ref() }))
    }

    /// Calls `work` with the changes of a transaction, and commits them if the work succeeds.
    fn batch<T>(
        &mut self,
        now: i64,
        work: impl FnOnce(&mut MemoryBatch<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let topics = self.topics.clone();
        let key_memory = self.key_memory;
        let route = self.session.as_ref().map(|session| session.route());
        // The request borrows the session, and the changes borrow the member.
        let mut member = self.session.as_mut().map(|session| std::mem::take(&mut session.member));
        let result = self.transact(OperationKind::Commit, |transaction| {
            let time = route.as_ref().map(Route::wall_time);
            let sharing = member.as_mut().zip(time).map(|(member, time)| member.sharing(time));
            let mut batch = MemoryBatch::new(transaction, &topics, now, key_memory, sharing);
            let value = work(&mut batch)?;
            batch.finish();
            Ok(value)
        });
        if let Some((session, member)) = self.session.as_mut().zip(member) {
            session.member = member;
        }
        result
    }

    fn note_open(&mut self, is_open: bool) -> Result<(), StoreError> {
        if is_open != self.is_noted_open && self.session.is_none() {
            self.transact(OperationKind::Note, |transaction| {
                transaction.write(Write::Open(is_open));
                Ok(())
            })?;
            self.is_noted_open = is_open;
        }
        Ok(())
    }
}

impl TimerStore for MemoryStore {
    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        let attached = self.transact(OperationKind::Note, |transaction| {
            for name in topics {
                if transaction.tables().topic(name).is_none() {
                    transaction.write(Write::Topic(Some(name.clone())));
                }
            }
            let tables = transaction.tables();
            let numbers = topics.iter().filter_map(|name| tables.topic(name)).collect();
            Ok((numbers, tables.is_open))
        });
        (self.topics, self.was_interrupted) = attached?;
        self.counts()
    }

    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError> {
        let outcomes: Vec<Outcome> =
            self.batch(now, |batch| changes.iter_mut().map(|change| batch.apply(change)).collect())?;
        if let Some(session) = &mut self.session {
            session.member.ownership.committed(changes, &outcomes);
        }
        Ok(outcomes)
    }

    fn load(&mut self, range: LoadRange) -> Result<Loaded, StoreError> {
        // A program that fires nothing loads nothing, and does not say that the last one was
        // closed.
        self.note_open(true)?;
        self.read_own(|tables, view| reads::load(tables, view, range))
    }

    fn far_periodic(&mut self, after: DueKey, limit: usize) -> Result<Vec<TimerRow>, StoreError> {
        self.read_own(|tables, view| reads::far_periodic(tables, view, after, limit))
    }

    fn list(&mut self, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
        self.read(|tables| reads::list(tables, filter))
    }

    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError> {
        self.read(reads::counts)
    }

    fn set_paused(&mut self, topic: &str, is_paused: bool) -> Result<bool, StoreError> {
        self.batch(0, |batch| Ok(upkeep::set_paused(batch, topic, is_paused)))
    }

    fn remove_dead(&mut self, letters: &DeadLetters, now: i64) -> Result<u64, StoreError> {
        self.batch(now, |batch| Ok(upkeep::remove_dead(batch, letters)))
    }

    fn retry_dead(
        &mut self,
        letters: &DeadLetters,
        dues: &[i64],
    ) -> Result<Vec<Option<TimerRow>>, StoreError> {
        self.batch(0, |batch| Ok(upkeep::retry_dead(batch, letters, dues)))
    }

    fn transaction(&mut self, work: &mut Effect) -> Result<(), StoreError> {
        self.transact(OperationKind::Commit, |transaction| StoreTransaction::new(transaction).run(work))
    }

    fn backup(&mut self, _path: &Path) -> Result<BackupWork, StoreError> {
        Err(StoreError::failed("a store in memory has no backups"))
    }

    fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    fn starter(&self) -> Option<Starter> {
        Some(Starter(Arc::new(MemoryStarts::new(self))))
    }

    fn changed_by_others(&mut self, until: i64, max_bytes: usize) -> Result<Loaded, StoreError> {
        if self.session.is_some() {
            return self.changed(until, max_bytes);
        }
        let view = View { topics: &self.topics, ownership: None };
        let starts = &mut self.program_starts;
        self.disk.read(self.number, |tables| reads::started(tables, view, starts, until, max_bytes))
    }

    fn needs_claims(&self) -> bool {
        self.session.is_some()
    }

    fn renew(&mut self, busy: &BTreeSet<u32>) -> Result<Option<Lease>, StoreError> {
        self.renew_lease(busy)
    }

    fn clock(&mut self) -> Option<ClockReading> {
        self.read_clock()
    }

    fn drain(&mut self) {
        if let Some(session) = &mut self.session {
            session.member.ownership.drain();
        }
    }

    fn release(&mut self) -> Result<(), StoreError> {
        if self.session.is_some() {
            return self.give_back();
        }
        match self.note_open(false) {
            // As in the SQLite store: the next program takes this one for one that was killed.
            Err(error) if error.is_transient() => Ok(()),
            noted => noted,
        }
    }
}

/// Returns the error of a simulated disk.
fn disk_error(error: machine::DiskError) -> StoreError {
    match error {
        machine::DiskError::Busy => StoreError::Busy("the simulated disk is busy".into()),
        machine::DiskError::Full => StoreError::DiskFull,
        machine::DiskError::Failed => StoreError::failed("a sync of the simulated disk has failed"),
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.disk.close(self.number);
    }
}
