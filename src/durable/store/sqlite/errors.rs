//! Converts errors of SQLite.

use super::disk_full::is_disk_full;
use crate::durable::store::error::StoreError;
use rusqlite::{Connection, ErrorCode, config::DbConfig};

/// Converts the error of a result.
pub(super) trait SqliteResult<T> {
    fn store(self) -> Result<T, StoreError>;
}

impl<T> SqliteResult<T> for rusqlite::Result<T> {
    fn store(self) -> Result<T, StoreError> {
        self.map_err(convert)
    }
}

/// Only errors after which SQLite has rolled back, and whose repetition is harmless, are transient.
/// A failed `fsync` is not.
fn convert(error: rusqlite::Error) -> StoreError {
    if is_disk_full(&error) {
        return StoreError::DiskFull;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Busy(error.to_string().into())
        }
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore,
        _ => StoreError::failed(error),
    }
}

/// Makes sure that closing the connection leaves the log as it is. Called after an error, because
/// copying the log would write and sync again.
pub(super) fn keep_log(connection: &Connection) {
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
}
