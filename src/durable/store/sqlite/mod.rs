//! `SqliteStore`: timers in a file.
//!
//! Invariants: one connection, which locks the file for as long as it is open, so no other process
//! changes the timers that this one has loaded. Write-ahead log with `synchronous=FULL`: a commit
//! is one `fsync` of the log. Counts per topic are changed in the same transaction as the
//! timers.

mod changes;
mod errors;
mod queries;
mod schema;

use super::{
    Change, DueKey, Effect, LoadRange, NewTimer, Outcome, StoreError, StoreTransaction, TimerFilter,
    TimerInfo, TimerRow, TimerState, TimerStore, TopicCounts,
};
use changes::Batch;
use errors::StoreResult;
use rusqlite::Connection;
use std::{path::Path, time::Duration};

/// How long the key of an ended timer is remembered, unless set otherwise.
const KEY_MEMORY: Duration = Duration::from_secs(24 * 3600);

/// A store of timers in an SQLite file, for one process.
///
/// The file is locked while the store is open: a second one fails with [`StoreError::InUse`]. A
/// commit has reached the disk when it returns (write-ahead log, `synchronous=FULL`).
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    /// The id of each attached topic.
    topics: Vec<i64>,
    key_memory: Duration,
}

impl SqliteStore {
    /// Opens or creates a store. Older versions of the schema are migrated.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`], [`StoreError::NotAStore`], [`StoreError::Version`], or
    /// [`StoreError::Failed`], for example if the directory does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::prepare(Connection::open(path).store()?)
    }

    /// Creates a store in memory, for tests. Nothing survives.
    ///
    /// # Errors
    ///
    /// Those of [`SqliteStore::open`].
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::prepare(Connection::open_in_memory().store()?)
    }

    /// Sets how long the idempotency key of an ended timer is remembered. 24 h by default.
    pub fn remember_keys(mut self, time: Duration) -> Self {
        self.key_memory = time;
        self
    }

    fn prepare(mut connection: Connection) -> Result<Self, StoreError> {
        let in_use = |error| match error {
            StoreError::Busy(_) => StoreError::InUse,
            other => other,
        };
        connection.busy_timeout(Duration::ZERO).store()?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").store()?;
        connection.pragma_update(None, "journal_mode", "WAL").store().map_err(in_use)?;
        connection.pragma_update(None, "synchronous", "FULL").store()?;
        connection.pragma_update(None, "foreign_keys", "OFF").store()?;
        schema::migrate(&mut connection).map_err(in_use)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(SqliteStore { connection, topics: Vec::new(), key_memory: KEY_MEMORY })
    }
}

impl TimerStore for SqliteStore {
    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        let transaction = self.connection.transaction().store()?;
        self.topics.clear();
        for name in topics {
            transaction
                .execute("INSERT INTO topics (name) VALUES (?1) ON CONFLICT DO NOTHING", [name])
                .store()?;
            let id = transaction.query_row("SELECT id FROM topics WHERE name = ?1", [name], |row| row.get(0));
            self.topics.push(id.store()?);
        }
        transaction.commit().store()?;
        self.counts()
    }

    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError> {
        Batch::new(self, now).commit(changes)
    }

    fn transaction(&mut self, work: &mut Effect) -> Result<(), StoreError> {
        let mut batch = Batch::new(self, 0);
        batch.transact(|batch| StoreTransaction::new(batch.connection()).run(work))
    }

    fn load(&mut self, range: LoadRange) -> Result<Vec<TimerRow>, StoreError> {
        queries::load(&self.connection, &self.topics, range)
    }

    fn list(&mut self, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
        queries::list(&self.connection, filter)
    }

    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError> {
        queries::counts(&self.connection)
    }
}
