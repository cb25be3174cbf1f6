//! One transaction with many changes.

use super::{
    Connection, SqliteStore,
    kept_read::KeptRead,
    queries,
    start_group::StartGroup,
    starts::{self, Started},
};
use crate::{
    durable::{
        id::TimerId,
        store::{
            change::{Change, NewTimer, Outcome},
            error::StoreError,
            remembered::Remembered,
            row::{Held, TimerRow},
            transaction::{Effect, StoreTransaction},
        },
    },
    sqlite::{CachedStatements, OpenFiles, WriteAheadLog, is_caused_by_full_disk, keep_log},
};
use rusqlite::params;
use std::{collections::BTreeMap, time::Duration};

/// The number of remembered keys that a transaction removes at most, so that it stays short.
const KEYS_REMOVED_AT_ONCE: i64 = 1000;

/// The name of the savepoint of an effect.
const EFFECT: &str = "effect";

const COLUMNS: &str = "id, due, scheduled, attempts, key, schedule, payload, begun";

/// A transaction, and how it changes the numbers of timers.
pub(super) struct SqliteBatch<'a> {
    connection: &'a mut Connection,
    read: &'a mut KeptRead,
    log: &'a mut WriteAheadLog,
    files: &'a OpenFiles,
    topics: &'a [i64],
    now: i64,
    /// How long keys of ended timers are remembered.
    key_memory: Duration,
    /// The changes of pending timers and dead letters by the id of the topic.
    counts: BTreeMap<i64, (i64, i64)>,
    ended_keys: bool,
}

/// What a change has to know about a stored timer.
struct Stored {
    topic: i64,
    state: i64,
    due: i64,
    key: Option<String>,
    is_periodic: bool,
}

impl<'a> SqliteBatch<'a> {
    pub(super) fn new(store: &'a mut SqliteStore, now: i64) -> Self {
        SqliteBatch {
            connection: &mut store.database.connection,
            read: &mut store.read,
            log: &mut store.log,
            files: &store.database.files,
            topics: &store.topics,
            now,
            key_memory: store.key_memory,
            counts: BTreeMap::new(),
            ended_keys: false,
        }
    }

    /// Makes all changes or none.
    pub(super) fn commit(mut self, changes: &mut [Change]) -> Result<Vec<Outcome>, StoreError> {
        let counts = self.read.take_counts();
        let is_urgent = !changes.iter().any(|change| matches!(change, Change::Start(_)));
        let outcomes = self.transact(is_urgent, |batch| batch.apply_all(changes))?;
        self.read.change_counts(counts, &self.counts);
        Ok(outcomes)
    }

    /// Runs `work` in a transaction, and commits it if the work succeeds. All transactions that
    /// grow with their work are made here, so that the log is limited and copied. One that
    /// `is_urgent` may use as much of the log again as the limit.
    pub(super) fn transact<T>(
        &mut self,
        is_urgent: bool,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // Only `commit` knows how the counts change.
        self.read.take_counts();
        self.make_room(is_urgent)?;
        self.begin_writing()?;
        let done = work(self);
        let result = done.and_then(|value| {
            self.execute("COMMIT")?;
            self.log.note_commit();
            self.files.check()?;
            Ok(value)
        });
        if result.is_err() && !self.connection.is_autocommit() {
            // The error that counts is the first one. If the rollback fails, so does the next
            // BEGIN.
            let _ = self.execute("ROLLBACK");
        }
        match result {
            Ok(_) => self.read.committed(),
            Err(_) => self.read.close(self.connection),
        }
        let is_fatal = |error: &StoreError| !error.is_transient() && !matches!(error, StoreError::Effect(_));
        if result.as_ref().is_err_and(is_fatal) {
            keep_log(self.connection);
        }
        result
    }

    fn make_room(&mut self, is_urgent: bool) -> Result<(), StoreError> {
        let end_read = |connection: &Connection| self.read.close(connection);
        Ok(self.log.make_room(self.connection, end_read, is_urgent)?)
    }

    /// Begins the transaction, and waits for other connections that write.
    fn begin_writing(&mut self) -> Result<(), StoreError> {
        let begun = self.execute("BEGIN IMMEDIATE");
        match begun {
            // Another connection has written since the read began, or is writing. SQLite waits for
            // it only if nothing is being read.
            Err(StoreError::Busy(_)) if self.read.is_open() => {
                self.read.close(self.connection);
                self.execute("BEGIN IMMEDIATE")
            }
            begun => begun,
        }
    }

    pub(super) fn connection(&mut self) -> &mut Connection {
        self.connection
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.connection.run(sql, [])?;
        Ok(())
    }

    fn apply_all(&mut self, changes: &mut [Change]) -> Result<Vec<Outcome>, StoreError> {
        let mut outcomes = Vec::with_capacity(changes.len());
        while let Some(rest @ [_, ..]) = changes.get_mut(outcomes.len()..) {
            if let Some(group) = StartGroup::first_of(rest, self.topics) {
                outcomes.extend(group.insert(self.connection)?);
                group.topics().for_each(|topic| self.count(topic, 1, 0));
            } else {
                outcomes.push(self.apply(&mut rest[0])?);
            }
        }
        self.finish()?;
        Ok(outcomes)
    }

    /// Stores the new numbers of timers, and forgets old keys.
    pub(super) fn finish(&mut self) -> Result<(), StoreError> {
        for (topic, (pending, dead)) in &self.counts {
            starts::add_counts(self.connection, *topic, *pending, *dead)?;
        }
        if self.ended_keys {
            let sql = "DELETE FROM ended_keys WHERE (topic, key) IN
                (SELECT topic, key FROM ended_keys WHERE ended < ?1 ORDER BY ended LIMIT ?2)";
            let values = params![Remembered::at(self.now, self.key_memory).first(), KEYS_REMOVED_AT_ONCE];
            self.connection.run(sql, values)?;
        }
        Ok(())
    }

    fn apply(&mut self, change: &mut Change) -> Result<Outcome, StoreError> {
        match change {
            Change::Start(timer) => self.start(timer),
            Change::End { held, next, effect } => self.end(*held, *next, effect.as_mut()),
            Change::Begin { held, is_counted } => self.begin(*held, *is_counted),
            Change::Retry { held, due, error } => self.retry(*held, *due, error),
            Change::DeadLetter { held, next, error } => self.dead_letter(*held, *next, error),
            Change::SkipTo { held, next } => match self.held(*held)? {
                Some(_) => self.advance(held.key.id, *next),
                None => Ok(Outcome::Missing),
            },
            Change::Claim { held } => {
                Ok(if self.held(*held)?.is_some() { Outcome::Done(None) } else { Outcome::Missing })
            }
            Change::Cancel(id) => self.cancel(*id),
            Change::Move { id, due } => self.move_to(*id, *due, true),
        }
    }

    fn start(&mut self, timer: &NewTimer) -> Result<Outcome, StoreError> {
        let Some(&topic) = self.topics.get(timer.topic) else {
            return Ok(Outcome::Refused(StoreError::failed("a timer of a topic that is not attached")));
        };
        match starts::start(self.connection, topic, timer, self.now, self.key_memory)? {
            Started::New(id) => {
                self.count(topic, 1, 0);
                Ok(Outcome::Started(timer.stored_row(id)))
            }
            Started::Stored { id, schedule, is_due } => {
                let changed = self.change_stored(id, schedule.as_deref(), is_due, timer)?;
                Ok(Outcome::AlreadyStarted { id, changed })
            }
            Started::Ended(id) => Ok(Outcome::AlreadyStarted { id, changed: None }),
        }
    }

    /// Changes a stored timer as a start with its key asks. Returns it if it has changed and is
    /// pending.
    fn change_stored(
        &mut self,
        id: TimerId,
        schedule: Option<&str>,
        is_due: bool,
        timer: &NewTimer,
    ) -> Result<Option<TimerRow>, StoreError> {
        if timer.has_other_schedule(schedule) {
            let sql = "UPDATE timers SET schedule = ?2, payload = ?3 WHERE id = ?1";
            self.connection.run(sql, params![id.get(), timer.schedule, timer.payload])?;
            if !is_due {
                return self.move_to(id, timer.due, false).map(Outcome::into_row);
            }
        } else if timer.replaces_payload {
            let sql = "UPDATE timers SET payload = ?2 WHERE id = ?1";
            self.connection.run(sql, params![id.get(), timer.payload])?;
        } else {
            return Ok(None);
        }
        self.row(id)
    }

    /// Runs the effect in a savepoint, so that its failure undoes nothing else. If the disk is
    /// full, SQLite may have rolled back everything already.
    fn end(
        &mut self,
        held: Held,
        next: Option<i64>,
        effect: Option<&mut Effect>,
    ) -> Result<Outcome, StoreError> {
        let Some(stored) = self.held(held)? else { return Ok(Outcome::Missing) };
        if let Some(effect) = effect {
            self.execute(&format!("SAVEPOINT {EFFECT}"))?;
            let mut is_disk_full = false;
            let watch = |error: &_| is_disk_full = is_caused_by_full_disk(error);
            if let Err(error) = StoreTransaction::new(self.connection).run_watched(effect, watch) {
                if is_disk_full && self.connection.is_autocommit() {
                    return Err(StoreError::DiskFull);
                }
                self.execute(&format!("ROLLBACK TO {EFFECT}"))?;
                self.execute(&format!("RELEASE {EFFECT}"))?;
                return Ok(Outcome::Refused(error));
            }
            self.execute(&format!("RELEASE {EFFECT}"))?;
        }
        match next {
            Some(next) => self.advance(held.key.id, next),
            None => self.remove(held.key.id, &stored).map(|()| Outcome::Done(None)),
        }
    }

    /// Notes a run before its handler is called. See [`Begun`] for the numbers.
    fn begin(&mut self, held: Held, is_counted: bool) -> Result<Outcome, StoreError> {
        if self.held(held)?.is_none() {
            return Ok(Outcome::Missing);
        }
        let sql = "UPDATE timers SET attempts = attempts + (?2 AND begun <> 2), begun = max(begun, 1 + ?2)
            WHERE id = ?1";
        self.connection.run(sql, params![held.key.id.get(), is_counted])?;
        Ok(Outcome::Done(None))
    }

    fn retry(&mut self, held: Held, due: i64, error: &str) -> Result<Outcome, StoreError> {
        if self.held(held)?.is_none() {
            return Ok(Outcome::Missing);
        }
        let sql =
            "UPDATE timers SET due = ?2, attempts = attempts + (begun <> 2), begun = begun / 2, error = ?3
            WHERE id = ?1";
        self.connection.run(sql, params![held.key.id.get(), due, error])?;
        self.row(held.key.id).map(Outcome::Done)
    }

    fn dead_letter(&mut self, held: Held, next: Option<i64>, error: &str) -> Result<Outcome, StoreError> {
        let Some(stored) = self.held(held)? else { return Ok(Outcome::Missing) };
        let id = held.key.id.get();
        if let Some(next) = next {
            let sql = "INSERT INTO timers (topic, state, due, scheduled, attempts, payload, error)
                SELECT topic, 1, ?3, scheduled, attempts + (begun <> 2), payload, ?2 FROM timers WHERE id = ?1";
            self.connection.run(sql, params![id, error, self.now])?;
            self.count(stored.topic, 0, 1);
            return self.advance(held.key.id, next);
        }
        let sql =
            "UPDATE timers SET state = 1, due = ?3, attempts = attempts + (begun <> 2), begun = 0, error = ?2
            WHERE id = ?1";
        self.connection.run(sql, params![id, error, self.now])?;
        self.count(stored.topic, -1, 1);
        Ok(Outcome::Done(None))
    }

    pub(super) fn cancel(&mut self, id: TimerId) -> Result<Outcome, StoreError> {
        match self.stored(id)? {
            Some(stored) => self.remove(id, &stored).map(|()| Outcome::Done(None)),
            None => Ok(Outcome::Missing),
        }
    }

    /// `is_command`: the timer keeps its time, however far away it is.
    pub(super) fn move_to(&mut self, id: TimerId, due: i64, is_command: bool) -> Result<Outcome, StoreError> {
        let Some(stored) = self.stored(id)? else { return Ok(Outcome::Missing) };
        if stored.state == 1 {
            self.count(stored.topic, 1, -1);
        }
        let sql =
            "UPDATE timers SET state = 0, due = ?2, scheduled = ?2, attempts = 0, begun = 0, moved = ?3,
            error = NULL WHERE id = ?1";
        self.connection.run(sql, params![id.get(), due, is_command])?;
        self.row(id).map(Outcome::Done)
    }

    /// Moves a periodic timer to its next run.
    fn advance(&mut self, id: TimerId, next: i64) -> Result<Outcome, StoreError> {
        let sql =
            "UPDATE timers SET due = ?2, scheduled = ?2, attempts = 0, begun = 0, moved = 0, error = NULL
            WHERE id = ?1";
        self.connection.run(sql, params![id.get(), next])?;
        self.row(id).map(Outcome::Done)
    }

    fn remove(&mut self, id: TimerId, stored: &Stored) -> Result<(), StoreError> {
        let sql = "DELETE FROM timers WHERE id = ?1";
        self.connection.run(sql, [id.get()])?;
        if stored.state == 1 {
            self.count(stored.topic, 0, -1)
        } else {
            self.count(stored.topic, -1, 0)
        }
        // A periodic timer that was cancelled may be started again.
        if let Some(key) = stored.key.as_ref().filter(|_| !stored.is_periodic) {
            let sql = "INSERT OR REPLACE INTO ended_keys (topic, key, id, ended) VALUES (?1, ?2, ?3, ?4)";
            self.connection.run(sql, params![stored.topic, key, id.get(), self.now])?;
            self.ended_keys = true;
        }
        Ok(())
    }

    /// Returns the timer of a run, if it still waits for that run.
    fn held(&mut self, held: Held) -> Result<Option<Stored>, StoreError> {
        let stored = self.stored(held.key.id)?;
        Ok(stored.filter(|stored| stored.state == 0 && stored.due == held.key.due))
    }

    fn stored(&mut self, id: TimerId) -> Result<Option<Stored>, StoreError> {
        let sql = "SELECT topic, state, due, key, schedule IS NOT NULL FROM timers WHERE id = ?1";
        let stored = self.connection.one(sql, [id.get()], |row| {
            Ok(Stored {
                topic: row.get(0)?,
                state: row.get(1)?,
                due: row.get(2)?,
                key: row.get(3)?,
                is_periodic: row.get(4)?,
            })
        });
        Ok(stored?)
    }

    /// Returns a pending timer of an attached topic as it is now.
    fn row(&mut self, id: TimerId) -> Result<Option<TimerRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS}, topic FROM timers WHERE id = ?1 AND state = 0");
        let topics = self.topics;
        let row = self.connection.one(&sql, [id.get()], |row| {
            let topic: i64 = row.get(8)?;
            let index = topics.iter().position(|known| *known == topic);
            index.map(|index| queries::timer(row, index)).transpose()
        });
        Ok(row?.flatten())
    }

    fn count(&mut self, topic: i64, pending: i64, dead: i64) {
        let counts = self.counts.entry(topic).or_default();
        counts.0 += pending;
        counts.1 += dead;
    }
}
