//! Converts errors of SQLite.

use crate::durable::StoreError;
use rusqlite::ErrorCode;

/// Converts the error of a result.
pub(super) trait StoreResult<T> {
    fn store(self) -> Result<T, StoreError>;
}

impl<T> StoreResult<T> for rusqlite::Result<T> {
    fn store(self) -> Result<T, StoreError> {
        self.map_err(convert)
    }
}

/// Only errors after which SQLite has rolled back, and whose repetition is harmless, are transient.
/// A failed `fsync` is `SQLITE_IOERR`, so it is not.
fn convert(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::DiskFull,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Busy(error.to_string().into())
        }
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore,
        _ => StoreError::failed(error),
    }
}
