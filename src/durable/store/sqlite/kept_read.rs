//! `KeptRead`: a read transaction that stays open between commits.
//!
//! SQLite locks its log for each read and each commit. That is up to eight system calls for a
//! commit and the counts after it. While a statement that reads has not ended, a commit keeps the
//! lock of its transaction, and the next commit begins with it. Only the two calls for the lock of
//! the writer are left.
//!
//! Invariants: the read excludes neither readers nor writers. It keeps other connections from
//! copying all of the log and from restarting it, so it ends when commits do not follow each other
//! closely. It ends before each statement that must see the writes of other connections, and before
//! the store copies the log. The statement stays in the cache: while the read is open, fewer
//! distinct statements are used than the cache holds (64).
//!
//! If a commit succeeds within the read, no other connection has written since the commit before.
//! The counts of the topics then follow from the counts before and the changes of the commit.

use crate::durable::store::listing::TopicCounts;
use rusqlite::{Connection, Result};
use std::{collections::BTreeMap, mem};

/// Any statement that reads, and has a row.
const READ: &str = "SELECT 1 FROM sqlite_schema";

#[derive(Debug, Default)]
pub(super) struct KeptRead {
    is_open: bool,
    /// Whether the store was not used since the last commit, so that the read shows its result.
    is_fresh: bool,
    /// The counts of the topics within the read, with the ids of the topics.
    counts: Option<Vec<(i64, TopicCounts)>>,
}

impl KeptRead {
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Opens the read before a commit. Without it, the commit only takes longer, so errors are left
    /// to the commit.
    pub(super) fn open(&mut self, connection: &Connection) {
        if !self.is_open {
            self.is_open = begin(connection).is_ok();
        }
        self.is_fresh = false;
    }

    /// Notes that a commit has succeeded.
    pub(super) fn committed(&mut self) {
        self.is_fresh = true;
    }

    /// Ends the read, unless it shows exactly the last commit.
    pub(super) fn close_unless_fresh(&mut self, connection: &Connection) {
        if !mem::take(&mut self.is_fresh) {
            self.close(connection);
        }
    }

    pub(super) fn close(&mut self, connection: &Connection) {
        if mem::take(&mut self.is_open) {
            end(connection);
        }
        self.is_fresh = false;
        self.counts = None;
    }

    /// Returns the counts of the topics if they are known.
    pub(super) fn counts(&self) -> Option<&[(i64, TopicCounts)]> {
        self.counts.as_deref()
    }

    /// Takes the counts of the topics before they change.
    pub(super) fn take_counts(&mut self) -> Option<Vec<(i64, TopicCounts)>> {
        self.counts.take()
    }

    /// Keeps the counts of the topics while the read is open.
    pub(super) fn keep_counts(&mut self, counts: Vec<(i64, TopicCounts)>) {
        self.counts = Some(counts).filter(|_| self.is_open);
    }

    /// Keeps the counts of the topics after a commit, which has changed the numbers of pending
    /// timers and dead letters by `changes`.
    pub(super) fn change_counts(
        &mut self,
        before: Option<Vec<(i64, TopicCounts)>>,
        changes: &BTreeMap<i64, (i64, i64)>,
    ) {
        let Some(mut counts) = before else { return };
        for (topic, counts) in &mut counts {
            if let Some((pending, dead)) = changes.get(topic) {
                counts.pending = counts.pending.saturating_add_signed(*pending);
                counts.dead = counts.dead.saturating_add_signed(*dead);
            }
        }
        self.keep_counts(counts);
    }
}

/// Leaves a statement in the cache of the connection that has a row and has not ended.
#[allow(clippy::mem_forget, reason = "dropping the rows would end the statement; they own nothing")]
fn begin(connection: &Connection) -> Result<()> {
    let mut statement = connection.prepare_cached(READ)?;
    let mut rows = statement.query([])?;
    let has_row = rows.next()?.is_some();
    debug_assert!(has_row, "a store has tables");
    mem::forget(rows);
    Ok(())
}

/// Ends the statement. If the cache does not have it any more, it has ended already.
fn end(connection: &Connection) {
    if let Ok(mut statement) = connection.prepare_cached(READ) {
        drop(statement.raw_query());
    }
}

#[cfg(test)]
mod tests {
    use crate::durable::store::{
        TimerStore,
        change::{Change, NewTimer, Outcome},
        error::StoreError,
        listing::TimerFilter,
        sqlite::SqliteStore,
    };
    use rusqlite::Connection;
    use std::time::Duration;
    use tempfile::TempDir;

    /// A busy store, and a connection of the program to its file.
    fn busy_store() -> (TempDir, SqliteStore, Connection) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("timers.db");
        let mut store = SqliteStore::open(&path).unwrap();
        store.attach(&["topic".to_owned()]).unwrap();
        store.set_busy(true);
        let other = Connection::open(path).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        (directory, store, other)
    }

    fn start(store: &mut SqliteStore) -> i64 {
        start_with(store, Vec::new())
    }

    fn start_with(store: &mut SqliteStore, payload: Vec<u8>) -> i64 {
        let timer = NewTimer {
            topic: 0,
            due: 0,
            idempotency_key: None,
            schedule: None,
            payload,
            replaces_payload: false,
        };
        match store.commit(&mut [Change::Start(timer)], 0).unwrap().pop() {
            Some(Outcome::Started(row)) => row.key.id.get(),
            other => panic!("{other:?}"),
        }
    }

    fn pending(store: &mut SqliteStore) -> u64 {
        store.counts().unwrap()[0].pending
    }

    fn stored_pending(other: &Connection) -> u64 {
        let number: i64 = other.query_row("SELECT pending FROM topics", [], |row| row.get(0)).unwrap();
        number.unsigned_abs()
    }

    /// Returns whether a connection can begin the log anew, because nothing is read from it.
    fn can_restart_log(other: &Connection) -> bool {
        let is_busy: bool = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
        !is_busy
    }

    #[test]
    fn a_read_stays_open_between_commits_that_follow_each_other() {
        let (_directory, mut store, other) = busy_store();
        for number in 1..=3 {
            assert_eq!(start(&mut store), number);
            assert!(!can_restart_log(&other), "the store reads");
            assert_eq!((pending(&mut store), stored_pending(&other)), (number as u64, number as u64));
            assert!(!can_restart_log(&other), "counts after a commit need no other read");
        }
        store.set_busy(false);
        assert!(can_restart_log(&other));
        start(&mut store);
        assert!(can_restart_log(&other), "a store that is not busy keeps nothing");
    }

    #[test]
    fn a_read_hides_no_write_and_excludes_no_writer() {
        let (_directory, mut store, other) = busy_store();
        let add = "UPDATE topics SET pending = pending + 10";
        start(&mut store);
        other.execute(add, []).unwrap();
        assert_eq!(pending(&mut store), 1, "after a commit, the counts are those of the commit");
        assert_eq!(pending(&mut store), 11);
        start(&mut store);
        other.execute(add, []).unwrap();
        start(&mut store);
        assert_eq!(pending(&mut store), 23, "a commit sees what others have stored");

        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let timers = store.list(&TimerFilter::new()).unwrap();
        assert_eq!(timers.len(), 3);
        let cancelled = store.commit(&mut [Change::Cancel(timers[0].id)], 0);
        assert!(matches!(cancelled, Err(StoreError::Busy(_))), "{cancelled:?}");
        other.execute_batch("COMMIT").unwrap();
        start(&mut store);
        assert_eq!(pending(&mut store), stored_pending(&other));
        start(&mut store);
        assert_eq!(pending(&mut store), stored_pending(&other));
        assert!(!can_restart_log(&other), "the store goes on as before");
    }

    #[test]
    fn the_log_of_a_busy_store_is_copied_and_begun_anew() {
        let (directory, mut store, _other) = busy_store();
        let log = directory.path().join("timers.db-wal");
        let mut longest = 0;
        for _ in 0..200 {
            start_with(&mut store, vec![b' '; 64 << 10]);
            store.maintain().unwrap();
            longest = log.metadata().unwrap().len().max(longest);
        }
        assert!(longest < 6 << 20, "{longest} bytes, and 1000 pages are copied at once");
    }

    #[cfg(feature = "rusqlite-040")]
    #[test]
    fn effects_may_change_tables_in_a_busy_store() {
        use crate::{durable::store::transaction::Effect, error::Error};

        let (_directory, mut store, _other) = busy_store();
        start(&mut store);
        for sql in ["CREATE TABLE own (n INTEGER)", "DROP TABLE own"] {
            let mut work: Effect =
                Box::new(move |transaction| transaction.sqlite()?.execute_batch(sql).map_err(Error::other));
            store.transaction(&mut work).unwrap();
        }
    }
}
