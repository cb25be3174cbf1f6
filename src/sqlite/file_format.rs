//! `FileFormat`: the tables of a file, and how older ones become newer ones.
//!
//! Invariants: `PRAGMA user_version` is the number of migrations that were applied. Each migration
//! and its version are committed together, so a crash between two of them is harmless.

use super::file_error::{FileError, FileResult};
use rusqlite::{Connection, TransactionBehavior};

/// The tables of a kind of files.
#[derive(Debug)]
pub(crate) struct FileFormat {
    /// The number in the header of the file, so that another program's database is not taken for
    /// one of this format.
    pub(crate) application_id: i64,
    /// The number in the header of a backup that was never opened as a store. Such a file does not
    /// have a log.
    pub(crate) backup_id: Option<i64>,
    /// Number n leads from version n to version n + 1. A migration is never edited after a release;
    /// a new one is added.
    pub(crate) migrations: &'static [&'static str],
}

impl FileFormat {
    /// Checks that a file has this format, or is empty, and that its version is known. Writes
    /// nothing.
    pub(crate) fn check(&self, connection: &Connection) -> Result<(), FileError> {
        self.found_version(connection).map(drop)
    }

    /// Returns whether a file is a backup that was never opened as a store.
    pub(super) fn is_backup(&self, connection: &Connection) -> Result<bool, FileError> {
        Ok(Some(owner(connection)?) == self.backup_id)
    }

    /// Makes a backup a store. Called before it gets a log, so that no backup ever has one.
    pub(super) fn adopt_backup(&self, connection: &Connection) -> Result<(), FileError> {
        if self.is_backup(connection)? {
            connection.pragma_update(None, "application_id", self.application_id).or_file_error()?;
        }
        Ok(())
    }

    /// Creates the tables or brings them to the newest version.
    pub(crate) fn migrate(&self, connection: &mut Connection) -> Result<(), FileError> {
        let begin = TransactionBehavior::Immediate;
        let transaction = connection.transaction_with_behavior(begin).or_file_error()?;
        let found = self.found_version(&transaction)?;
        transaction.pragma_update(None, "application_id", self.application_id).or_file_error()?;
        transaction.commit().or_file_error()?;
        for (version, migration) in self.migrations.iter().enumerate().skip(found) {
            let transaction = connection.transaction_with_behavior(begin).or_file_error()?;
            transaction.execute_batch(migration).or_file_error()?;
            transaction.pragma_update(None, "user_version", version as i64 + 1).or_file_error()?;
            transaction.commit().or_file_error()?;
        }
        Ok(())
    }

    /// Returns the version of a file, which is zero if it is empty.
    fn found_version(&self, connection: &Connection) -> Result<usize, FileError> {
        let known = self.migrations.len() as i64;
        let found: i64 =
            connection.pragma_query_value(None, "user_version", |row| row.get(0)).or_file_error()?;
        let owner = owner(connection)?;
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .or_file_error()?;
        let is_empty = tables == 0 && found == 0 && owner == 0;
        if owner != self.application_id && Some(owner) != self.backup_id && !is_empty {
            return Err(FileError::OtherFormat);
        }
        usize::try_from(found).ok().filter(|_| found <= known).ok_or(FileError::Version { found, known })
    }
}

fn owner(connection: &Connection) -> Result<i64, FileError> {
    connection.pragma_query_value(None, "application_id", |row| row.get(0)).or_file_error()
}
