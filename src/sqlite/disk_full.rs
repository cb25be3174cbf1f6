//! Tells a full disk from other errors of SQLite.

#[cfg(feature = "durable-sqlite")]
use crate::error::Error;
use rusqlite::{ErrorCode, ffi};
use std::io::{self, ErrorKind};

/// Returns whether an error means that there is no room for a write: the disk is full, the quota is
/// used up, or the file may not grow. SQLite has rolled back, and the write may be repeated.
///
/// SQLite has a code for the first case only. The others are errors of a write, whose cause is the
/// last error of the thread, as SQLite itself determines it. So call this before anything else that
/// may fail. A failed `fsync` has a code of its own for every cause, and never counts.
pub(super) fn is_disk_full(error: &rusqlite::Error) -> bool {
    let cause = io::Error::last_os_error().kind();
    let Some(error) = error.sqlite_error() else { return false };
    let is_write = [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE].contains(&error.extended_code);
    let no_room = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    error.code == ErrorCode::DiskFull || is_write && no_room.contains(&cause)
}

/// Looks for the error of SQLite among the causes of an error, as [`is_disk_full`] does.
#[cfg(feature = "durable-sqlite")]
pub(crate) fn is_caused_by_full_disk(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = match error {
        Error::Other(cause) => Some(&**cause),
        other => std::error::Error::source(other),
    };
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<rusqlite::Error>() {
            return is_disk_full(error);
        }
        if let Some(error) = error.downcast_ref::<Error>() {
            return is_caused_by_full_disk(error);
        }
        cause = error.source();
    }
    false
}
