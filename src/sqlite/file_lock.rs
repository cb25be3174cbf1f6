//! `FileLock`: keeps other programs from opening the same store.
//!
//! The lock is that of a file of its own. A lock of the database file would be a POSIX lock, as
//! SQLite uses them. The system drops such locks when the program opens and closes the file once
//! more, for example to copy it.

use super::file_error::FileError;
use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// A lock that is held until the value is dropped, or the process ends.
///
/// The file is never removed. If it were, two programs could hold locks of two files with the same
/// name.
#[derive(Debug)]
pub(super) struct FileLock {
    file: File,
}

impl FileLock {
    /// Locks a store by the file `path`, which is created if it is missing.
    ///
    /// # Errors
    ///
    /// [`FileError::InUse`] if another process, or another part of this one, holds the lock.
    pub(super) fn acquire(path: &Path) -> Result<Self, FileError> {
        let failed = |error| FileError::failed(format!("cannot lock {}: {error}", path.display()));
        loop {
            let Some(file) = try_lock(path).map_err(failed)? else { return Err(FileError::InUse) };
            // Somebody may have removed the file before it was locked.
            if is_at(&file, path).map_err(failed)? {
                return Ok(FileLock { file });
            }
        }
    }
}

/// Unlocks the file even if a process that is being started has a copy of the handle.
impl Drop for FileLock {
    fn drop(&mut self) {
        if let Err(error) = unlock(&self.file) {
            log::debug!("a file stays locked until all handles of its lock are closed: {error}");
        }
    }
}

/// Returns `path` with `suffix` behind the name of the file.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Opens and locks a file. `None` if it is locked already.
#[cfg(unix)]
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    use rustix::{
        fs::{FlockOperation, flock},
        io::Errno,
    };

    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(unix)]
fn unlock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock)?)
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use super::file_id::FileId;

    let held = FileId::of_open(file)?;
    match FileId::of(path) {
        Ok(found) => Ok(found == held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a file that no other handle may open until it is closed.
#[cfg(windows)]
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    use std::os::windows::fs::OpenOptionsExt;

    const SHARING_VIOLATION: i32 = 32;
    match OpenOptions::new().create(true).truncate(false).write(true).share_mode(0).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(SHARING_VIOLATION) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Closing the handle unlocks the file.
#[cfg(windows)]
fn unlock(_file: &File) -> io::Result<()> {
    Ok(())
}

/// An open file cannot be removed there.
#[cfg(windows)]
fn is_at(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is being started has copies of all handles until it executes its program.
    #[test]
    fn a_store_is_unlocked_although_a_copy_of_the_handle_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = FileLock::acquire(&path).unwrap();
        let copy = lock.file.try_clone().unwrap();
        assert!(matches!(FileLock::acquire(&path), Err(FileError::InUse)));
        drop(lock);
        FileLock::acquire(&path).unwrap();
        drop(copy);
    }
}
