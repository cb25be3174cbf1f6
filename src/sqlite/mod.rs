//! Files of SQLite that belong to a part of this crate: opened, locked and kept.
//!
//! Invariants: a lock for as long as the file is open, so one part of one program uses it as its
//! store. Other connections may read and write the file at the same time. Write-ahead log with
//! `synchronous=FULL`: a commit is one `fsync` of the log. This module does not depend on
//! the tables.

mod busy_wait;
mod cached_statements;
mod disk_full;
mod file_error;
mod file_format;
mod file_id;
mod file_lock;
#[cfg(target_os = "linux")]
mod kept_locks;
mod open_database;
mod open_files;
mod write_ahead_log;

pub(crate) use cached_statements::CachedStatements;
#[cfg(feature = "durable-sqlite")]
pub(crate) use disk_full::is_caused_by_full_disk;
pub(crate) use file_error::{FileError, FileResult, keep_log};
pub(crate) use file_format::FileFormat;
#[cfg(feature = "durable-sqlite")]
pub(crate) use file_id::FileId;
#[cfg(feature = "durable-sqlite")]
pub(crate) use file_lock::beside;
pub(crate) use open_database::OpenDatabase;
#[cfg(feature = "durable-sqlite")]
pub(crate) use open_files::OpenFiles;
pub(crate) use write_ahead_log::{MIN_LIMIT, WriteAheadLog};
