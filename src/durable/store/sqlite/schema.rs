//! The tables of an SQLite store.

use crate::{
    durable::store::error::StoreError,
    sqlite::{FileFormat, FileResult},
};
use rusqlite::Connection;

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

/// The tables of a store.
pub(super) const FORMAT: FileFormat =
    FileFormat { application_id: APPLICATION_ID, backup_id: Some(BACKUP_ID), migrations: MIGRATIONS };

/// Makes a copy of a store a backup. It says that it was closed, and has no log.
pub(super) fn make_backup(copy: &Connection) -> Result<(), StoreError> {
    let _: String =
        copy.pragma_update_and_check(None, "journal_mode", "DELETE", |row| row.get(0)).or_file_error()?;
    copy.execute_batch("BEGIN; UPDATE timer_store SET is_open = 0").or_file_error()?;
    copy.pragma_update(None, "application_id", BACKUP_ID).or_file_error()?;
    Ok(copy.execute_batch("COMMIT").or_file_error()?)
}
