//! Converts errors of SQLite.

use crate::{
    durable::store::error::StoreError,
    sqlite::{FileError, FileResult},
};

/// Converts the error of a result.
pub(super) trait SqliteResult<T> {
    fn store(self) -> Result<T, StoreError>;
}

impl<T> SqliteResult<T> for rusqlite::Result<T> {
    fn store(self) -> Result<T, StoreError> {
        Ok(self.or_file_error()?)
    }
}

impl From<FileError> for StoreError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::InUse => StoreError::InUse,
            FileError::OtherFormat => StoreError::NotAStore,
            FileError::Version { found, known } => StoreError::Version { found, known },
            FileError::Busy(cause) => StoreError::Busy(cause),
            FileError::DiskFull => StoreError::DiskFull,
            FileError::Failed(cause) => StoreError::Failed(cause),
        }
    }
}
