//! `Others`: which timers other connections have stored.
//!
//! The numbers of timers grow in the order of the commits, because only one connection writes at a
//! time. So a timer behind the greatest number of the last look that this connection has not
//! started was stored by another connection, or by an effect.

use super::{Connection, queries};
use crate::{
    durable::store::{change::Loaded, error::StoreError},
    sqlite::{CachedStatements, FileResult},
};
use rusqlite::params;
use std::collections::VecDeque;

/// The largest number of timers in one answer.
const ROWS_LIMIT: usize = 1024;

/// The largest number of ranges of own starts that are remembered. If there are more, timers of
/// this connection are returned too.
const RANGES_LIMIT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Others {
    /// All timers up to this number are known.
    seen: i64,
    /// The numbers of own starts behind `seen`, in ascending order: the first and the last.
    own: VecDeque<(i64, i64)>,
}

impl Others {
    /// Begins with the timers that are stored now. Earlier ones are loaded.
    pub(super) fn begin(connection: &Connection) -> Result<Self, StoreError> {
        Ok(Others { seen: last_number(connection)?, own: VecDeque::new() })
    }

    /// Remembers that this connection has stored a timer.
    pub(super) fn started(&mut self, number: i64) {
        let is_full = self.own.len() >= RANGES_LIMIT;
        match self.own.back_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            None if self.seen + 1 == number => self.seen = number,
            _ if is_full => self.own.clear(),
            _ => self.own.push_back((number, number)),
        }
    }

    /// Returns pending timers of the topics that are due by `until`, and were stored since the last
    /// look. Ends when they take `max_bytes`.
    ///
    /// After an error, the next look returns the timers that this one has read. It may then return
    /// own timers too.
    pub(super) fn look(
        &mut self,
        connection: &Connection,
        topics: &[i64],
        until: i64,
        max_bytes: usize,
    ) -> Result<Loaded, StoreError> {
        let seen = self.seen;
        self.search(connection, topics, until, max_bytes).inspect_err(|_| self.seen = seen)
    }

    fn search(
        &mut self,
        connection: &Connection,
        topics: &[i64],
        until: i64,
        max_bytes: usize,
    ) -> Result<Loaded, StoreError> {
        let mut found = Vec::new();
        let mut bytes = 0;
        let last = last_number(connection)?;
        while self.seen < last {
            if let Some((first, own_last)) = self.own.front().copied()
                && first <= self.seen + 1
            {
                self.seen = self.seen.max(own_last);
                self.own.pop_front();
                continue;
            }
            let gap_end = self.own.front().map_or(last, |(first, _)| (first - 1).min(last));
            let sql = "SELECT id, due, scheduled, attempts, key, schedule, payload, begun, topic FROM timers
                WHERE id > ?1 AND id <= ?2 AND state = 0 AND due <= ?3 ORDER BY id";
            let mut statement = connection.prepare_cached(sql).or_file_error()?;
            let mut rows = statement.query(params![self.seen, gap_end, until]).or_file_error()?;
            while let Some(row) = rows.next().or_file_error()? {
                let topic: i64 = row.get(8).or_file_error()?;
                let Some(index) = topics.iter().position(|known| *known == topic) else { continue };
                let timer = queries::timer(row, index).or_file_error()?;
                self.seen = timer.key.id.get();
                bytes += timer.weight();
                found.push(timer);
                if found.len() >= ROWS_LIMIT || bytes >= max_bytes {
                    return Ok(Loaded { rows: found, is_complete: false });
                }
            }
            self.seen = gap_end;
        }
        Ok(Loaded { rows: found, is_complete: true })
    }
}

/// Returns the greatest number that was ever given to a timer.
fn last_number(connection: &Connection) -> Result<i64, StoreError> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'timers'";
    Ok(connection.one(sql, [], |row| row.get(0))?.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use crate::durable::store::{TimerStore, sqlite::SqliteStore};

    /// A row that cannot be read fails a look after it has read another row.
    #[test]
    fn timers_of_a_look_that_fails_are_found_by_the_next_one() {
        let mut store = SqliteStore::in_memory().unwrap();
        store.attach(&["topic".to_owned()]).unwrap();
        let connection = &store.database.connection;
        let run = |sql: &str| connection.execute_batch(sql).unwrap();
        run("INSERT INTO timers (topic, state, due, scheduled, attempts, payload)
            VALUES (1, 0, 5, 5, 0, x'31'), (1, 0, 6, 6, 0, x'32')");
        run("UPDATE timers SET attempts = -1 WHERE due = 6");
        let mut look = || store.others.look(connection, &store.topics, 10, usize::MAX);
        assert!(look().is_err());
        run("UPDATE timers SET attempts = 0");
        let dues: Vec<i64> = look().unwrap().rows.iter().map(|row| row.key.due).collect();
        assert_eq!(dues, [5, 6]);
    }
}
