//! Starts of timers, in transactions of the store and of the program.

use super::Connection;
use crate::{
    durable::{
        id::TimerId,
        store::{change::NewTimer, error::StoreError, remembered::Remembered, start_in::StartTimers},
    },
    sqlite::{CachedStatements, FileId, FileResult},
};
use rusqlite::params;
use std::{any::Any, time::Duration};

/// The name of the savepoint of a start in a transaction of the program.
const START: &str = "netwheel_start";

/// What a start has found or done.
pub(super) enum Started {
    New(TimerId),
    /// A timer with the same key is stored.
    Stored {
        id: TimerId,
        schedule: Option<String>,
        /// Whether it is pending and its scheduled time has come.
        is_due: bool,
    },
    /// A timer with the same key has ended.
    Ended(TimerId),
}

/// Stores a timer, unless its key is known. The caller [counts](add_counts) a new one.
pub(super) fn start(
    connection: &Connection,
    topic: i64,
    timer: &NewTimer,
    now: i64,
    key_memory: Duration,
) -> Result<Started, StoreError> {
    if let Some(key) = &timer.idempotency_key
        && let Some(known) = known_key(connection, topic, key, now, key_memory)?
    {
        return Ok(known);
    }
    let sql = "INSERT INTO timers (topic, state, due, scheduled, attempts, key, schedule, payload)
        VALUES (?1, 0, ?2, ?2, 0, ?3, ?4, ?5)";
    connection.run(sql, params![topic, timer.due, timer.idempotency_key, timer.schedule, timer.payload])?;
    Ok(Started::New(TimerId::new(connection.last_insert_rowid())))
}

/// Looks for a pending, dead or ended timer with the same key.
fn known_key(
    connection: &Connection,
    topic: i64,
    key: &str,
    now: i64,
    key_memory: Duration,
) -> Result<Option<Started>, StoreError> {
    let sql = "SELECT id, schedule, state = 0 AND scheduled <= ?3 FROM timers WHERE topic = ?1 AND key = ?2";
    let stored = connection.one(sql, params![topic, key, now], |row| {
        Ok(Started::Stored { id: TimerId::new(row.get(0)?), schedule: row.get(1)?, is_due: row.get(2)? })
    })?;
    if stored.is_some() {
        return Ok(stored);
    }
    let sql = "SELECT id FROM ended_keys WHERE topic = ?1 AND key = ?2 AND ended BETWEEN ?3 AND ?4";
    let remembered = Remembered::at(now, key_memory);
    let values = params![topic, key, remembered.first(), remembered.last()];
    let ended = connection.one(sql, values, |row| row.get(0).map(TimerId::new))?;
    Ok(ended.map(Started::Ended))
}

/// Changes the numbers of pending timers and dead letters of a topic. Returns whether the topic
/// exists.
pub(super) fn add_counts(
    connection: &Connection,
    topic: i64,
    pending: i64,
    dead: i64,
) -> Result<bool, StoreError> {
    let sql = "UPDATE topics SET pending = pending + ?2, dead = dead + ?3 WHERE id = ?1";
    Ok(connection.run(sql, params![topic, pending, dead])? == 1)
}

/// Starts timers in transactions of the program.
#[derive(Debug)]
pub(super) struct SqliteStarts {
    /// `None` in memory, where no connection of the program reaches the store.
    pub(super) file: Option<FileId>,
    /// The id of each attached topic.
    pub(super) topics: Vec<i64>,
    pub(super) key_memory: Duration,
}

impl SqliteStarts {
    /// Starts a timer in a connection of the program.
    #[cfg(feature = "rusqlite-040")]
    pub(super) fn start_in_program(
        &self,
        connection: &Connection,
        timer: &NewTimer,
        now: i64,
    ) -> Result<TimerId, StoreError> {
        if self.file.is_none() {
            return Err(StoreError::OtherStore);
        }
        self.start_in_file(connection, timer, now)
    }

    /// Checks that a connection is to the file of the store. Such a file is open as a store, so its
    /// tables are those of this version.
    fn check(&self, connection: &Connection) -> Result<(), StoreError> {
        let found =
            connection.path().filter(|path| !path.is_empty()).and_then(|path| FileId::of(path.as_ref()).ok());
        if found == self.file { Ok(()) } else { Err(StoreError::OtherStore) }
    }

    /// Returns the timer, and whether it is a new one.
    fn start_here(
        &self,
        connection: &Connection,
        timer: &NewTimer,
        now: i64,
    ) -> Result<(TimerId, bool), StoreError> {
        let topic = *self.topics.get(timer.topic).ok_or(StoreError::OtherStore)?;
        // The first statement writes. A transaction that reads first cannot write after another
        // connection has done so.
        if !add_counts(connection, topic, 1, 0)? {
            return Err(StoreError::OtherStore);
        }
        match start(connection, topic, timer, now, self.key_memory)? {
            Started::New(id) => Ok((id, true)),
            Started::Ended(id) => Ok((id, false)),
            Started::Stored { schedule, .. } if timer.has_other_schedule(schedule.as_deref()) => {
                Err(StoreError::OtherSchedule)
            }
            Started::Stored { id, .. } => Ok((id, false)),
        }
    }

    /// After an error, nothing of the timer is left.
    fn start_in_file(
        &self,
        connection: &Connection,
        timer: &NewTimer,
        now: i64,
    ) -> Result<TimerId, StoreError> {
        self.check(connection)?;
        let execute = |sql: &str| connection.execute_batch(sql).or_file_error().map_err(StoreError::from);
        let [begin, end, undo] = if connection.is_autocommit() {
            ["BEGIN IMMEDIATE".to_owned(), "COMMIT".to_owned(), "ROLLBACK".to_owned()]
        } else {
            let undo = format!("ROLLBACK TO {START}; RELEASE {START}");
            [format!("SAVEPOINT {START}"), format!("RELEASE {START}"), undo]
        };
        execute(&begin)?;
        let started = self.start_here(connection, timer, now);
        let result = match started {
            Ok((id, true)) => execute(&end).map(|()| id),
            // A known key: the count is undone too.
            Ok((id, false)) => return execute(&undo).map(|()| id),
            Err(error) => Err(error),
        };
        if result.is_err() && !connection.is_autocommit() {
            // The error that counts is the first one.
            let _ = execute(&undo);
        }
        result
    }
}

impl StartTimers for SqliteStarts {
    fn start_in(&self, connection: &mut dyn Any, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        let connection = connection.downcast_ref::<Connection>().ok_or(StoreError::OtherStore)?;
        self.start_in_file(connection, timer, now)
    }
}
