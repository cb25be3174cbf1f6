//! `SqliteStore`: timers in a file.
//!
//! Invariants: a lock for as long as the store is open, so no other program fires the same timers.
//! Other connections may read and write the file at the same time. Write-ahead log with
//! `synchronous=FULL`: a commit is one `fsync` of the log. Counts per topic are changed in the same
//! transaction as the timers.

mod backup;
mod changes;
#[cfg(feature = "rusqlite-040")]
mod connections;
mod errors;
mod kept_read;
mod others;
mod queries;
mod schema;
mod start_group;
mod starts;
mod upkeep;

use super::{
    TimerStore,
    change::{Change, LoadRange, Loaded, Outcome},
    dead_letters::DeadLetters,
    error::StoreError,
    listing::{TimerFilter, TimerInfo, TopicCounts},
    maintenance::{BackupWork, Maintenance},
    row::{DueKey, TimerRow},
    start_in::Starter,
    transaction::{Effect, StoreTransaction},
};
use crate::{
    error::Result,
    machine::refuse_in_simulation,
    sqlite::{FileResult, MIN_LIMIT, OpenDatabase, WriteAheadLog, keep_log},
};
use backup::Backup;
use changes::SqliteBatch;
use kept_read::KeptRead;
use others::Others;
use rusqlite::{Connection, OptionalExtension};
use schema::FORMAT;
use starts::SqliteStarts;
use std::{
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

/// How long the key of an ended timer is remembered, unless set otherwise.
const KEY_MEMORY: Duration = Duration::from_secs(24 * 3600);

/// A store of timers in an SQLite file, for one process.
///
/// The store is locked while it is open: a second one fails with [`StoreError::InUse`]. The lock is
/// that of a file of its own, whose name ends in `-lock`, so the program and tools such as
/// `sqlite3` may open the database file too. While another connection writes, the store waits for
/// up to 1 s, and then fails with [`StoreError::Busy`]. A commit has reached the disk when it
/// returns (write-ahead log, `synchronous=FULL`).
#[derive(Debug)]
pub struct SqliteStore {
    database: OpenDatabase,
    log: WriteAheadLog,
    /// What the next commit can use again.
    read: KeptRead,
    /// Whether requests follow each other closely.
    is_busy: bool,
    /// The id of each attached topic.
    topics: Vec<i64>,
    key_memory: Duration,
    others: Others,
    /// Whether the last program that fired timers has not closed the store.
    was_interrupted: bool,
    /// Whether the store says that timers fire.
    is_noted_open: bool,
    /// Alive while a backup is made.
    backup: Weak<()>,
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
        refuse_in_simulation("SqliteStore").map_err(StoreError::failed)?;
        Self::on(OpenDatabase::open(path.as_ref(), &FORMAT)?)
    }

    /// Creates a store in memory, for tests. Nothing survives.
    ///
    /// # Errors
    ///
    /// The errors of [`SqliteStore::open`].
    pub fn in_memory() -> Result<Self, StoreError> {
        refuse_in_simulation("SqliteStore").map_err(StoreError::failed)?;
        Self::on(OpenDatabase::in_memory(&FORMAT)?)
    }

    /// Sets how long the idempotency key of an ended timer is remembered. 24 h by default.
    pub fn remember_keys(mut self, time: Duration) -> Self {
        self.key_memory = time;
        self
    }

    /// Sets how many bytes the write-ahead log may have. 256 MiB by default.
    ///
    /// The log is copied to the database file whenever it has about 4 MiB. It grows beyond that
    /// during a backup, in long transactions of the program, and while another connection reads an
    /// old state of the file. It also grows if the file cannot be written. Above the limit, starts,
    /// transactions of the program and changes of many dead letters fail with [`StoreError::Busy`].
    /// Above twice the limit, runs do not end either, and their ends are tried again.
    ///
    /// The smallest limit is 1 MiB.
    /// [`start`](crate::durable::DurableTimersBuilder::start) refuses a smaller one.
    pub fn max_log_bytes(mut self, bytes: u64) -> Self {
        self.log.limit = bytes;
        self
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.log.limit < MIN_LIMIT {
            return Err(StoreError::setting("max_log_bytes", self.log.limit, "at least 1 MiB"));
        }
        Ok(())
    }

    /// Notes that timers fire from now on, or that no handler runs any more. A note that stays
    /// after the end of a program tells that it has not closed the store.
    fn note_open(&mut self, is_open: bool) -> Result<(), StoreError> {
        if is_open != self.is_noted_open {
            let sql = "UPDATE timer_store SET is_open = ?1";
            self.connection().execute(sql, [is_open]).or_file_error()?;
            self.is_noted_open = is_open;
        }
        Ok(())
    }

    /// Returns the connection for statements that see everything that was stored.
    fn connection(&mut self) -> &Connection {
        self.read.close(&self.database.connection);
        &self.database.connection
    }

    fn on(mut database: OpenDatabase) -> Result<Self, StoreError> {
        FORMAT.migrate(&mut database.connection)?;
        database.connection.set_prepared_statement_cache_capacity(64);
        let others = Others::begin(&database.connection)?;
        Ok(SqliteStore {
            log: WriteAheadLog::new(&database.connection, "timer store")?,
            database,
            read: KeptRead::default(),
            is_busy: false,
            was_interrupted: false,
            is_noted_open: false,
            topics: Vec::new(),
            key_memory: KEY_MEMORY,
            others,
            backup: Weak::new(),
        })
    }
}

impl TimerStore for SqliteStore {
    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        self.check()?;
        self.read.close(&self.database.connection);
        let transaction = self.database.connection.transaction().or_file_error()?;
        self.topics.clear();
        for name in topics {
            transaction
                .execute("INSERT INTO topics (name) VALUES (?1) ON CONFLICT DO NOTHING", [name])
                .or_file_error()?;
            let id = transaction.query_row("SELECT id FROM topics WHERE name = ?1", [name], |row| row.get(0));
            self.topics.push(id.or_file_error()?);
        }
        let sql = "SELECT is_open FROM timer_store";
        self.was_interrupted =
            transaction.query_row(sql, [], |row| row.get(0)).optional().or_file_error()? == Some(1);
        transaction.commit().or_file_error()?;
        self.counts()
    }

    fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    fn release(&mut self) -> Result<(), StoreError> {
        match self.note_open(false) {
            // All timers are stored. The next program takes this one for one that was killed, and
            // notes the attempts of the timers that are due by then.
            Err(error) if error.is_transient() => {
                log::warn!("the timer store could not note that it was closed: {error}");
                Ok(())
            }
            noted => noted,
        }
    }

    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError> {
        // A statement that has not ended would refuse some statements of the program.
        let has_effects = changes.iter().any(|change| matches!(change, Change::End { effect: Some(_), .. }));
        if self.is_busy && !has_effects {
            self.read.open(&self.database.connection);
        } else {
            self.read.close(&self.database.connection);
        }
        let outcomes = SqliteBatch::new(self, now).commit(changes)?;
        for outcome in &outcomes {
            if let Outcome::Started(row) = outcome {
                self.others.started(row.key.id.get());
            }
        }
        Ok(outcomes)
    }

    fn transaction(&mut self, work: &mut Effect) -> Result<(), StoreError> {
        self.read.close(&self.database.connection);
        let mut batch = SqliteBatch::new(self, 0);
        batch.transact(false, |batch| StoreTransaction::new(batch.connection()).run(work))
    }

    fn load(&mut self, range: LoadRange) -> Result<Loaded, StoreError> {
        // A program that fires nothing loads nothing, and does not say that the last one was
        // closed.
        self.note_open(true)?;
        self.read.close(&self.database.connection);
        let loaded = queries::load(&self.database.connection, &self.topics, range)?;
        self.database.files.check().inspect_err(|_| keep_log(&self.database.connection))?;
        Ok(loaded)
    }

    fn far_periodic(&mut self, after: DueKey, limit: usize) -> Result<Vec<TimerRow>, StoreError> {
        self.read.close(&self.database.connection);
        queries::far_periodic(&self.database.connection, &self.topics, after, limit)
    }

    fn list(&mut self, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
        queries::list(self.connection(), filter)
    }

    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError> {
        let connection = &self.database.connection;
        self.read.close_unless_fresh(connection);
        let without_ids = |(_, counts): &(i64, TopicCounts)| counts.clone();
        if let Some(counts) = self.read.counts() {
            return Ok(counts.iter().map(without_ids).collect());
        }
        let counts = queries::counts(connection)?;
        let answer = counts.iter().map(without_ids).collect();
        self.read.keep_counts(counts);
        Ok(answer)
    }

    fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
        if !is_busy {
            self.read.close(&self.database.connection);
        }
    }

    fn backup(&mut self, path: &Path) -> Result<BackupWork, StoreError> {
        let Some(from) = &self.database.path else {
            return Err(StoreError::failed("a store in memory has no backups"));
        };
        if self.backup.strong_count() > 0 {
            return Err(StoreError::Busy("another backup is being made".into()));
        }
        let backup = Backup::begin(from, &self.database.files, path)?;
        let running = Arc::new(());
        self.backup = Arc::downgrade(&running);
        Ok(Box::new(move || {
            let _running = running;
            backup.run()
        }))
    }

    fn maintain(&mut self) -> Result<Maintenance, StoreError> {
        self.log.maintain(&self.database.connection, |connection| self.read.close(connection))?;
        Ok(Maintenance::new(self.log.bytes(), self.log.failures()))
    }

    fn has_other_writers(&self) -> bool {
        self.database.path.is_some()
    }

    fn changed_by_others(&mut self, until: i64, max_bytes: usize) -> Result<Loaded, StoreError> {
        self.read.close(&self.database.connection);
        self.others.look(&self.database.connection, &self.topics, until, max_bytes)
    }

    fn starter(&self) -> Option<Starter> {
        let file = self.database.files.database();
        let starts = SqliteStarts { file, topics: self.topics.clone(), key_memory: self.key_memory };
        Some(Starter(Arc::new(starts)))
    }

    fn set_paused(&mut self, topic: &str, is_paused: bool) -> Result<bool, StoreError> {
        upkeep::set_paused(self, topic, is_paused)
    }

    fn remove_dead(&mut self, letters: &DeadLetters, now: i64) -> Result<u64, StoreError> {
        upkeep::remove_dead(self, letters, now)
    }

    fn retry_dead(
        &mut self,
        letters: &DeadLetters,
        dues: &[i64],
    ) -> Result<Vec<Option<TimerRow>>, StoreError> {
        upkeep::retry_dead(self, letters, dues)
    }
}
