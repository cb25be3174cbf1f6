//! `Backup`: a copy of a store that is in use.
//!
//! The copy is read by a connection of its own, from the state at which it began, so the store goes
//! on during the copy. The log is kept until the copy is complete.

use super::schema;
use crate::{
    durable::store::error::StoreError,
    sqlite::{FileResult, OpenFiles, beside, keep_log},
};
use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup as Copying, StepResult},
};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// The number of pages that are copied before they are synced. Syncing all of them at the end would
/// delay the transactions of the store.
const PAGES_AT_ONCE: i32 = 2048;

/// The files that SQLite may leave beside a database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

pub(super) struct Backup {
    from: Connection,
    to: PathBuf,
    /// The copy until it is complete.
    partial: PathBuf,
}

impl Backup {
    /// Begins a copy of the present state of a file.
    pub(super) fn begin(from: &Path, files: &OpenFiles, to: &Path) -> Result<Self, StoreError> {
        refuse_existing(to)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let from = Connection::open_with_flags(from, flags).or_file_error()?;
        keep_log(&from);
        // The first read of a transaction determines its state.
        from.execute_batch("BEGIN").or_file_error()?;
        schema::FORMAT.check(&from)?;
        files.check()?;
        Ok(Backup { from, to: to.to_owned(), partial: beside(to, "-partial") })
    }

    /// Copies everything. Either the complete copy is on the disk afterwards, or nothing.
    pub(super) fn run(self) -> Result<(), StoreError> {
        let result = self.copy();
        if result.is_err() {
            // The first error counts.
            let _ = self.remove_partial();
        }
        result
    }

    fn copy(&self) -> Result<(), StoreError> {
        let failed = |error: io::Error| self.failed(error);
        // A process that was killed may have left one.
        self.remove_partial().map_err(failed)?;
        let mut copy = Connection::open(&self.partial).or_file_error()?;
        let file = File::options().write(true).open(&self.partial).map_err(failed)?;
        copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").or_file_error()?;
        {
            let copying = Copying::new(&self.from, &mut copy).or_file_error()?;
            while copying.step(PAGES_AT_ONCE).or_file_error()? != StepResult::Done {
                file.sync_data().map_err(failed)?;
            }
        }
        drop(copy);
        let copy = Connection::open(&self.partial).or_file_error()?;
        schema::make_backup(&copy)?;
        copy.close().map_err(|(_, error)| error).or_file_error()?;
        file.sync_all().map_err(failed)?;
        drop(file);
        refuse_existing(&self.to)?;
        fs::rename(&self.partial, &self.to).map_err(failed)?;
        sync_directory(&self.to).map_err(failed)
    }

    fn failed(&self, error: io::Error) -> StoreError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreError::DiskFull
            }
            _ => StoreError::failed(format!("cannot write the backup {}: {error}", self.to.display())),
        }
    }

    fn remove_partial(&self) -> io::Result<()> {
        let companions = COMPANIONS.iter().map(|suffix| beside(&self.partial, suffix));
        for path in companions.chain([self.partial.clone()]) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A backup replaces nothing: neither the store itself, nor an older backup, nor a file that has a
/// log.
fn refuse_existing(path: &Path) -> Result<(), StoreError> {
    let companions = COMPANIONS.iter().map(|suffix| beside(path, suffix));
    match companions.chain([path.to_owned()]).find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(StoreError::failed(format!("{} exists already", path.display()))),
        None => Ok(()),
    }
}

/// Makes the name of a file durable.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Directories cannot be synced there.
#[cfg(windows)]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}
