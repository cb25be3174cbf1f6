//! The tables of an SQLite store, and how older ones become newer ones.
//!
//! Invariants: `PRAGMA user_version` is the number of migrations that were applied. Each migration
//! and its version are committed together, so a crash between two of them is harmless. A migration
//! is never edited after a release; a new one is added.

use super::errors::SqliteResult;
use crate::durable::store::error::StoreError;
use rusqlite::{Connection, TransactionBehavior};

/// "nwtm" in the header of the file, so that another program's database is not taken for a store.
const APPLICATION_ID: i64 = 0x6e77_746d;

/// "nwtb": a backup that was never opened as a store. It has no log of its own.
const BACKUP_ID: i64 = 0x6e77_7462;

/// The migrations. Number n leads from version n to version n + 1.
pub(super) const MIGRATIONS: &[&str] = &[
    // The counts make the metrics independent of the number of timers.
    "CREATE TABLE topics (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        pending INTEGER NOT NULL DEFAULT 0,
        dead INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE timers (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        topic INTEGER NOT NULL REFERENCES topics,
        state INTEGER NOT NULL,
        due INTEGER NOT NULL,
        scheduled INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        key TEXT,
        schedule TEXT,
        payload BLOB NOT NULL,
        error TEXT
    ) STRICT;
    CREATE INDEX timers_due ON timers (topic, due) WHERE state = 0;
    CREATE INDEX timers_dead ON timers (topic) WHERE state = 1;
    CREATE UNIQUE INDEX timers_key ON timers (topic, key) WHERE key IS NOT NULL;",
    // Keys of ended timers, so that a start that is repeated after the end does not run twice.
    "CREATE TABLE ended_keys (
        topic INTEGER NOT NULL REFERENCES topics,
        key TEXT NOT NULL,
        id INTEGER NOT NULL,
        ended INTEGER NOT NULL,
        PRIMARY KEY (topic, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX ended_keys_time ON ended_keys (ended);",
    // Attempts that were counted before their handler ran, timers that a command has moved, paused
    // topics, and whether the store was closed. Indexes for dead letters in the orders in which
    // they are listed and removed.
    "ALTER TABLE timers ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE timers ADD COLUMN moved INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX timers_periodic ON timers (due, id) WHERE state = 0 AND schedule IS NOT NULL;
    ALTER TABLE topics ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE timer_store (is_open INTEGER NOT NULL) STRICT;
    INSERT INTO timer_store VALUES (0);
    DROP INDEX timers_dead;
    CREATE INDEX timers_dead ON timers (id) WHERE state = 1;
    CREATE INDEX timers_dead_topic ON timers (topic, id) WHERE state = 1;
    CREATE INDEX timers_dead_due ON timers (topic, due, id) WHERE state = 1;",
];

/// Checks that a file is a store, or empty, and that its version is known. Writes nothing.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    found_version(connection).map(drop)
}

/// Returns whether a file is a backup that was never opened as a store.
pub(super) fn is_backup(connection: &Connection) -> Result<bool, StoreError> {
    let owner: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).store()?;
    Ok(owner == BACKUP_ID)
}

/// Makes a copy of a store a backup. It says that it was closed, and has no log.
pub(super) fn make_backup(copy: &Connection) -> Result<(), StoreError> {
    let _: String = copy.pragma_update_and_check(None, "journal_mode", "DELETE", |row| row.get(0)).store()?;
    copy.execute_batch("BEGIN; UPDATE timer_store SET is_open = 0").store()?;
    copy.pragma_update(None, "application_id", BACKUP_ID).store()?;
    copy.execute_batch("COMMIT").store()
}

/// Makes a backup a store. Called before it gets a log, so that no backup ever has one.
pub(super) fn adopt_backup(connection: &Connection) -> Result<(), StoreError> {
    if is_backup(connection)? {
        connection.pragma_update(None, "application_id", APPLICATION_ID).store()?;
    }
    Ok(())
}

/// Creates the tables or brings them to the newest version.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).store()?;
    let found = found_version(&transaction)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID).store()?;
    transaction.commit().store()?;
    for (version, migration) in MIGRATIONS.iter().enumerate().skip(found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).store()?;
        transaction.execute_batch(migration).store()?;
        transaction.pragma_update(None, "user_version", version as i64 + 1).store()?;
        transaction.commit().store()?;
    }
    Ok(())
}

/// Returns the version of a store, which is zero if it is empty.
fn found_version(connection: &Connection) -> Result<usize, StoreError> {
    let known = MIGRATIONS.len() as i64;
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).store()?;
    let owner: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).store()?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).store()?;
    let is_empty = tables == 0 && found == 0 && owner == 0;
    if ![APPLICATION_ID, BACKUP_ID].contains(&owner) && !is_empty {
        return Err(StoreError::NotAStore);
    }
    usize::try_from(found).ok().filter(|_| found <= known).ok_or(StoreError::Version { found, known })
}
