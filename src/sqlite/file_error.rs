//! `FileError`: why a file of SQLite cannot be used.

use super::disk_full::is_disk_full;
use rusqlite::{Connection, ErrorCode, config::DbConfig};
use std::{fmt, sync::Arc};

/// An error of a file. The part of the crate that owns the file converts it into its own error.
#[derive(Debug, Clone)]
pub(crate) enum FileError {
    /// Another program, or another part of this one, has opened the file as its store.
    InUse,
    /// The file belongs to another program, or to another part of this crate.
    OtherFormat,
    /// A newer version of this crate wrote the file.
    Version {
        found: i64,
        known: i64,
    },
    /// Another connection writes, or the log is too long.
    Busy(Arc<str>),
    DiskFull,
    Failed(Arc<str>),
}

impl FileError {
    pub(crate) fn failed(cause: impl fmt::Display) -> Self {
        FileError::Failed(cause.to_string().into())
    }

    /// Returns whether SQLite has rolled back, so that trying again later is harmless.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, FileError::Busy(_) | FileError::DiskFull)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::InUse => f.write_str("the file is in use"),
            FileError::OtherFormat => f.write_str("the file has another format"),
            FileError::Version { found, known } => {
                write!(f, "the file has version {found}; versions up to {known} are understood")
            }
            FileError::Busy(cause) => write!(f, "the file is busy: {cause}"),
            FileError::DiskFull => f.write_str("the disk is full"),
            FileError::Failed(cause) => f.write_str(cause),
        }
    }
}

/// Converts the error of a result.
pub(crate) trait FileResult<T> {
    fn or_file_error(self) -> Result<T, FileError>;
}

impl<T> FileResult<T> for rusqlite::Result<T> {
    fn or_file_error(self) -> Result<T, FileError> {
        self.map_err(convert)
    }
}

/// Only errors after which SQLite has rolled back, and whose repetition is harmless, are transient.
/// A failed `fsync` is not.
fn convert(error: rusqlite::Error) -> FileError {
    if is_disk_full(&error) {
        return FileError::DiskFull;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            FileError::Busy(error.to_string().into())
        }
        Some(ErrorCode::NotADatabase) => FileError::OtherFormat,
        _ => FileError::failed(error),
    }
}

/// Makes sure that closing the connection leaves the log as it is. Called after an error, because
/// copying the log would write and sync again.
pub(crate) fn keep_log(connection: &Connection) {
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
}
