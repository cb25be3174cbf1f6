//! Converts errors of SQLite.

use crate::{durable::store::error::StoreError, sqlite::FileError};

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
