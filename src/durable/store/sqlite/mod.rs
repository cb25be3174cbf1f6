//! `SqliteStore`: timers in a file.
//!
//! Invariants: a lock for as long as the store is open, so no other program fires the same timers.
//! Other connections may read and write the file meanwhile. Write-ahead log with
//! `synchronous=FULL`: a commit is one `fsync` of the log. Counts per topic are changed in the same
//! transaction as the timers.

mod changes;
mod errors;
mod file_lock;
mod open_files;
mod queries;
mod schema;
mod write_ahead_log;

use super::{
    Change, DueKey, Effect, LoadRange, Loaded, Maintenance, NewTimer, Outcome, StoreError, StoreTransaction,
    TimerFilter, TimerInfo, TimerRow, TimerState, TimerStore, TopicCounts,
};
use crate::{Error, Result};
use changes::Batch;
use errors::{StoreResult, keep_log};
use file_lock::{FileLock, beside};
use open_files::OpenFiles;
use rusqlite::{Connection, config::DbConfig};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use write_ahead_log::{MIN_LIMIT, WriteAheadLog};

/// How long the key of an ended timer is remembered, unless set otherwise.
const KEY_MEMORY: Duration = Duration::from_secs(24 * 3600);

/// How long to wait for another connection that writes. Longer transactions fail with
/// [`StoreError::Busy`].
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// A store of timers in an SQLite file, for one process.
///
/// The store is locked while it is open: a second one fails with [`StoreError::InUse`]. The lock is
/// that of a file of its own, whose name ends in `-lock`, so the program and tools such as
/// `sqlite3` may open the database file, too. While another connection writes, the store waits for
/// up to 1 s, and then fails with [`StoreError::Busy`]. A commit has reached the disk when it
/// returns (write-ahead log, `synchronous=FULL`).
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    /// The id of each attached topic.
    topics: Vec<i64>,
    key_memory: Duration,
    log: WriteAheadLog,
    /// Empty in memory.
    files: OpenFiles,
    /// `None` in memory. Unlocked after the connection was closed.
    _lock: Option<FileLock>,
}

impl SqliteStore {
    /// Opens or creates a store. Older versions of the schema are migrated. A file of another
    /// program is not changed.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`], [`StoreError::NotAStore`], [`StoreError::Version`], or
    /// [`StoreError::Failed`], for example if the directory does not exist or cannot be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let connection = Connection::open(&path).store()?;
        // Closing the file would remove the log of a store that has lost SQLite's own locks.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).store()?;
        connection.busy_timeout(BUSY_WAIT).store()?;
        schema::check(&connection).map_err(in_use)?;
        let Some(path) = file_of(&connection, path.as_ref())? else { return Self::prepare(connection, None) };
        let lock_path = beside(&path, "-lock");
        let lock = FileLock::acquire(&lock_path)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).store()?;
        let mut store = Self::prepare(connection, Some(lock))?;
        store.files = OpenFiles::new([beside(&path, "-wal"), lock_path, path])?;
        Ok(store)
    }

    /// Creates a store in memory, for tests. Nothing survives.
    ///
    /// # Errors
    ///
    /// Those of [`SqliteStore::open`].
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::prepare(Connection::open_in_memory().store()?, None)
    }

    /// Sets how long the idempotency key of an ended timer is remembered. 24 h by default.
    pub fn remember_keys(mut self, time: Duration) -> Self {
        self.key_memory = time;
        self
    }

    /// Sets how many bytes the write-ahead log may have. 256 MiB by default.
    ///
    /// The log is copied to the database file whenever it has about 4 MiB. It grows beyond that
    /// while another connection reads an old state of the file, while a backup is made, in long
    /// transactions of the program, and if the file cannot be written. Above the limit, starts fail
    /// with [`StoreError::Busy`]. Above twice the limit, runs do not end either, and their ends are
    /// tried again.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `bytes` is less than 1 MiB.
    pub fn log_limit(mut self, bytes: u64) -> Result<Self> {
        if bytes < MIN_LIMIT {
            return Err(Error::setting("log_limit", bytes, "at least 1 MiB"));
        }
        self.log.limit = bytes;
        Ok(self)
    }

    fn prepare(mut connection: Connection, lock: Option<FileLock>) -> Result<Self, StoreError> {
        let mode: String = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
            .store()
            .map_err(in_use)?;
        if lock.is_some() && mode != "wal" {
            return Err(StoreError::failed("the file system does not support write-ahead logs"));
        }
        connection.pragma_update(None, "synchronous", "FULL").store()?;
        connection.pragma_update(None, "foreign_keys", "OFF").store()?;
        schema::migrate(&mut connection)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(SqliteStore {
            log: WriteAheadLog::new(&connection)?,
            connection,
            topics: Vec::new(),
            key_memory: KEY_MEMORY,
            files: OpenFiles::default(),
            _lock: lock,
        })
    }
}

/// A connection that other programs have to wait for while it is open.
fn in_use(error: StoreError) -> StoreError {
    match error {
        StoreError::Busy(_) => StoreError::InUse,
        other => other,
    }
}

/// Returns the file of a connection, or `None` if it is in memory. SQLite follows links, and the
/// other files of the database are beside their target.
fn file_of(connection: &Connection, path: &Path) -> Result<Option<PathBuf>, StoreError> {
    match connection.path() {
        Some("") => Ok(None),
        Some(file) => Ok(Some(file.into())),
        // The name is not UTF-8.
        None => fs::canonicalize(path).map(Some).map_err(StoreError::failed),
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
        let is_urgent = !changes.iter().any(|change| matches!(change, Change::Start(_)));
        self.log.make_room(&self.connection, is_urgent)?;
        Batch::new(self, now).commit(changes)
    }

    fn transaction(&mut self, work: &mut Effect) -> Result<(), StoreError> {
        self.log.make_room(&self.connection, false)?;
        let mut batch = Batch::new(self, 0);
        batch.transact(|batch| StoreTransaction::new(batch.connection()).run(work))
    }

    fn load(&mut self, range: LoadRange) -> Result<Loaded, StoreError> {
        let loaded = queries::load(&self.connection, &self.topics, range)?;
        self.files.check().inspect_err(|_| keep_log(&self.connection))?;
        Ok(loaded)
    }

    fn list(&mut self, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
        queries::list(&self.connection, filter)
    }

    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError> {
        queries::counts(&self.connection)
    }

    fn maintain(&mut self) -> Result<Maintenance, StoreError> {
        self.log.maintain(&self.connection)?;
        Ok(Maintenance::new(self.log.bytes(), self.log.failures()))
    }
}
