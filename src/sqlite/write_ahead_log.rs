//! `WriteAheadLog`: the log of a store. Copies it to the database file, and limits its length.
//!
//! SQLite would do the copying after a commit, and ignore its errors. A failed `fsync` of the
//! database file would be repeated, and could then seem to succeed. So this copying is turned off
//! in SQLite, and the store checks each result.

use super::{
    busy_wait::{wait_for_nobody, wait_for_writers},
    file_error::{FileError, FileResult, keep_log},
};
use rusqlite::Connection;
use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// The number of pages that are copied together. SQLite's default.
const COPIED_TOGETHER: u64 = 1000;

/// The limit of the log in bytes, unless set otherwise.
const LIMIT: u64 = 256 << 20;

/// The smallest limit.
pub(crate) const MIN_LIMIT: u64 = 1 << 20;

/// The pauses between attempts to copy after a failure: the first one, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Copies what no reader of an old state needs.
const COPY: &str = "PRAGMA main.wal_checkpoint(PASSIVE)";

/// Copies everything, and shortens the file. Busy if there is a reader.
const COPY_AND_SHORTEN: &str = "PRAGMA main.wal_checkpoint(TRUNCATE)";

/// The part of the log's pages that is no data: 24 bytes for each page, and 32 for the file.
const PAGE_HEADER: u64 = 24;
const FILE_HEADER: u64 = 32;

thread_local! {
    /// The pages of the log after the last commit of this thread, or zero. SQLite passes them to a
    /// function that has no state.
    static PAGES: Cell<u64> = const { Cell::new(0) };
}

#[derive(Debug)]
pub(crate) struct WriteAheadLog {
    /// The name of the owner in messages.
    owner: &'static str,
    /// In bytes. Starts are refused above it, and everything above twice as much.
    pub(crate) limit: u64,
    /// The bytes of a page, with its header.
    page_size: u64,
    /// After the last commit or copy.
    state: State,
    /// The number of pages not copied yet at which the log is copied.
    copy_at: u64,
    /// Attempts to copy that have failed.
    failures: u64,
    pause: Option<Pause>,
}

/// The pages of a log since it was begun anew.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    pages: u64,
    copied: u64,
}

/// The time until the next attempt.
#[derive(Debug)]
struct Pause {
    until: Instant,
    length: Duration,
    why: String,
}

impl WriteAheadLog {
    /// Takes over the log of a connection from SQLite.
    pub(crate) fn new(connection: &Connection, owner: &'static str) -> Result<Self, FileError> {
        let _: i64 = connection
            .pragma_update_and_check(None, "wal_autocheckpoint", 0, |row| row.get(0))
            .or_file_error()?;
        connection.wal_hook(Some(|_, pages| {
            PAGES.set(u64::try_from(pages).unwrap_or_default());
            Ok(())
        }));
        let page_size: i64 =
            connection.pragma_query_value(None, "page_size", |row| row.get(0)).or_file_error()?;
        Ok(WriteAheadLog {
            owner,
            limit: LIMIT,
            page_size: page_size.unsigned_abs() + PAGE_HEADER,
            state: State::default(),
            copy_at: COPIED_TOGETHER,
            failures: 0,
            pause: None,
        })
    }

    /// Returns the bytes of the log since it was begun anew.
    pub(crate) fn bytes(&self) -> u64 {
        if self.state.pages == 0 { 0 } else { FILE_HEADER + self.state.pages * self.page_size }
    }

    /// Returns how often the log could not be copied.
    #[cfg(feature = "durable-sqlite")]
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Takes note of the log's length after a commit of its connection.
    pub(crate) fn note_commit(&mut self) {
        let pages = PAGES.take();
        if pages == 0 {
            return;
        }
        if pages < self.state.pages {
            self.state.copied = 0;
            self.copy_at = COPIED_TOGETHER;
        }
        self.state.pages = pages;
    }

    /// Copies the log if it has grown. `end_read` is called before, to end a read of the
    /// connection.
    ///
    /// # Errors
    ///
    /// [`FileError`] if nothing may be written any more. If there is no room in the file system,
    /// or another connection copies, the next call after a pause tries again.
    pub(crate) fn maintain(
        &mut self,
        connection: &Connection,
        end_read: impl FnOnce(&Connection),
    ) -> Result<(), FileError> {
        let waiting = self.state.pages.saturating_sub(self.state.copied);
        if waiting >= self.copy_at && self.may_try() { self.copy(connection, end_read, COPY) } else { Ok(()) }
    }

    /// Makes sure that the log has room for a transaction. One that `is_urgent` may use as much
    /// again as the limit.
    ///
    /// # Errors
    ///
    /// [`FileError::Busy`] if the log is too long, and cannot be shortened.
    pub(crate) fn make_room(
        &mut self,
        connection: &Connection,
        end_read: impl FnOnce(&Connection),
        is_urgent: bool,
    ) -> Result<(), FileError> {
        // Another store of this thread may have left its own.
        PAGES.set(0);
        let limit = if is_urgent { self.limit.saturating_mul(2) } else { self.limit };
        if self.bytes() < limit {
            return Ok(());
        }
        if self.may_try() {
            self.copy(connection, end_read, COPY_AND_SHORTEN)?;
        }
        match &self.pause {
            Some(pause) if self.bytes() >= limit => {
                let bytes = self.bytes();
                let why = &pause.why;
                Err(FileError::Busy(format!("its log has {bytes} bytes, and {why}").into()))
            }
            _ => Ok(()),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "the pause after a failure is real time")]
    fn may_try(&self) -> bool {
        self.pause.as_ref().is_none_or(|pause| pause.until <= Instant::now())
    }

    fn copy(
        &mut self,
        connection: &Connection,
        end_read: impl FnOnce(&Connection),
        pragma: &str,
    ) -> Result<(), FileError> {
        end_read(connection);
        match checkpoint(connection, pragma) {
            Ok(done) => {
                self.state = done.state;
                self.copy_at = COPIED_TOGETHER + done.state.pages.saturating_sub(done.state.copied);
                if done.is_busy {
                    self.wait("another connection reads an old state of the file, or writes".to_owned());
                } else if let Some(pause) = self.pause.take() {
                    log::info!("the log of the {} is copied again; before, {}", self.owner, pause.why);
                }
                Ok(())
            }
            Err(error) if error.is_transient() => {
                self.failures += 1;
                self.wait(format!("copying it to the database file fails: {error}"));
                Ok(())
            }
            Err(error) => {
                keep_log(connection);
                let owner = self.owner;
                let why = format!("the log of the {owner} could not be copied to the database file: {error}");
                Err(FileError::failed(why))
            }
        }
    }

    /// Begins a pause, or a longer one. Only the first one is logged.
    #[allow(clippy::disallowed_methods, reason = "the pause after a failure is real time")]
    fn wait(&mut self, why: String) {
        let (first, longest) = PAUSES;
        let length = match &self.pause {
            Some(pause) => (pause.length * 2).min(longest),
            None => {
                log::warn!("the log of the {} has {} bytes, and {why}", self.owner, self.bytes());
                first
            }
        };
        self.pause = Some(Pause { until: Instant::now() + length, length, why });
    }
}

/// The result of a checkpoint.
struct Checkpoint {
    is_busy: bool,
    state: State,
}

/// Runs a pragma that copies the log, without a wait for other connections.
fn checkpoint(connection: &Connection, pragma: &str) -> Result<Checkpoint, FileError> {
    wait_for_nobody(connection)?;
    let result = connection.prepare_cached(pragma).and_then(|mut statement| {
        // The numbers are -1 for a database in memory.
        let number = |number: i64| u64::try_from(number).unwrap_or_default();
        statement.query_row([], |row| {
            let state = State { pages: number(row.get(1)?), copied: number(row.get(2)?) };
            Ok(Checkpoint { is_busy: row.get(0)?, state })
        })
    });
    let result = result.or_file_error();
    wait_for_writers(connection)?;
    result
}
