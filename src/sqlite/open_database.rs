//! `OpenDatabase`: the file of a store, checked, locked and ready for its tables.
//!
//! Invariants: nothing is written before the file is known to be a store, and locked. Nothing but
//! SQLite and [`KeptLocks`] opens the file: when a process closes any other handle to it, the
//! system drops the locks of all its connections.

#[cfg(target_os = "linux")]
use super::kept_locks::{KeptLocks, UnusedHandles};
use super::{
    busy_wait::wait_for_writers,
    file_error::{FileError, FileResult, keep_log},
    file_format::FileFormat,
    file_lock::{FileLock, beside},
    open_files::OpenFiles,
};
use rusqlite::{Connection, OpenFlags, config::DbConfig};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A database with a write-ahead log. Its parts are dropped in this order.
#[derive(Debug)]
pub(crate) struct OpenDatabase {
    #[cfg(target_os = "linux")]
    kept: KeptLocks,
    pub(crate) connection: Connection,
    #[cfg(target_os = "linux")]
    _unused: UnusedHandles,
    /// Empty in memory.
    pub(crate) files: OpenFiles,
    /// `None` in memory.
    pub(crate) path: Option<PathBuf>,
    _lock: Option<FileLock>,
}

impl OpenDatabase {
    /// Opens or creates a file.
    pub(crate) fn open(path: &Path, format: &FileFormat) -> Result<Self, FileError> {
        let connection = Connection::open(path).or_file_error()?;
        let path = file_of(&connection, path)?;
        let mut database = OpenDatabase {
            #[cfg(target_os = "linux")]
            kept: KeptLocks::default(),
            connection,
            #[cfg(target_os = "linux")]
            _unused: UnusedHandles,
            files: OpenFiles::default(),
            path,
            _lock: None,
        };
        if let Some(path) = database.path.clone() {
            database.lock(&path, format)?;
        }
        let mode: String = database
            .connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
            .or_file_error()
            .map_err(in_use)?;
        if let Some(path) = &database.path {
            if mode != "wal" {
                return Err(FileError::failed("the file system does not support write-ahead logs"));
            }
            // The log exists when a transaction has begun.
            format.check(&database.connection)?;
            #[cfg(target_os = "linux")]
            {
                database.kept = KeptLocks::hold(path, &beside(path, "-shm"))?;
            }
            database.files = OpenFiles::new([beside(path, "-wal"), beside(path, "-lock"), path.clone()])?;
        }
        database.connection.pragma_update(None, "synchronous", "FULL").or_file_error()?;
        database.connection.pragma_update(None, "foreign_keys", "OFF").or_file_error()?;
        Ok(database)
    }

    /// Opens a database in memory.
    #[cfg(feature = "durable-sqlite")]
    pub(crate) fn in_memory(format: &FileFormat) -> Result<Self, FileError> {
        Self::open(Path::new(":memory:"), format)
    }

    fn lock(&mut self, path: &Path, format: &FileFormat) -> Result<(), FileError> {
        check_log(path, format)?;
        // Until the file is locked, closing it must not remove the log: a store that has lost
        // SQLite's own locks may use it.
        keep_log(&self.connection);
        wait_for_writers(&self.connection)?;
        format.check(&self.connection).map_err(in_use)?;
        self._lock = Some(FileLock::acquire(&beside(path, "-lock"))?);
        self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).or_file_error()?;
        format.adopt_backup(&self.connection)
    }
}

/// A connection for which other programs have to wait while it is open.
fn in_use(error: FileError) -> FileError {
    match error {
        FileError::Busy(_) => FileError::InUse,
        other => other,
    }
}

/// Returns the file of a connection, or `None` if it is in memory. SQLite follows links, and the
/// other files of the database are beside their target.
fn file_of(connection: &Connection, path: &Path) -> Result<Option<PathBuf>, FileError> {
    match connection.path() {
        Some("") => Ok(None),
        Some(file) => Ok(Some(file.into())),
        // The name is not UTF-8.
        None => fs::canonicalize(path).map(Some).map_err(FileError::failed),
    }
}

/// Refuses a backup beside a log, which is that of the file that was there before. SQLite would
/// apply it to the backup.
fn check_log(path: &Path, format: &FileFormat) -> Result<(), FileError> {
    let log = beside(path, "-wal");
    // A backup can be read without a log. Another file may be incomplete without it.
    let is_backup = || without_log(path).and_then(|file| format.is_backup(&file));
    if !log.metadata().is_ok_and(|log| log.len() > 0) || !is_backup().unwrap_or(false) {
        return Ok(());
    }
    Err(FileError::failed(format!(
        "{} is the log of another file; remove it and {} before the backup is opened",
        log.display(),
        beside(path, "-shm").display()
    )))
}

/// Opens a file as if it had no log, and could not change.
fn without_log(path: &Path) -> Result<Connection, FileError> {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(byte.into()),
            b'\\' if cfg!(windows) => uri.push('/'),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags).or_file_error()
}
