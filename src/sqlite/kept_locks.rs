//! `KeptLocks`: locks that stay when the program opens and closes the files of its store.
//!
//! SQLite's own locks belong to the process. When that closes any handle to the file, for example
//! after it has copied the file, the system drops all of them. Another process that closes the
//! database then takes itself for the only one, and removes the log. The locks here belong to an
//! open file description, so other handles do not matter. They exclude only what no process may do
//! while the store is open: believe that it is alone.
//!
//! Closing the handle of such a lock drops SQLite's locks too. So a handle is closed only if the
//! process has no other one of the same file, and otherwise kept for the next store.

use super::{file_error::FileError, file_id::FileId};
use crate::machine::{Mutex, MutexGuard};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{self, File},
    io,
    path::Path,
};

/// The bytes of the database file that each connection has locked for reading, and that the last
/// one locks for writing before it removes the log.
const SHARED: Range = Range { start: 0x4000_0002, length: 510 };

/// The byte of the file of shared memory that says whether a process uses it.
const IN_USE: Range = Range { start: 128, length: 1 };

#[derive(Debug, Clone, Copy)]
struct Range {
    start: libc::off_t,
    length: libc::off_t,
}

/// All handles of the process.
static HANDLES: Mutex<BTreeMap<FileId, File>> = Mutex::new(BTreeMap::new());

/// The locks of a store. Dropped before its connection is closed.
#[derive(Debug, Default)]
pub(super) struct KeptLocks {
    held: Vec<(FileId, Range)>,
}

impl KeptLocks {
    /// Locks a database and its file of shared memory. Holds nothing on file systems without such
    /// locks.
    ///
    /// # Errors
    ///
    /// [`FileError::InUse`] if another process believes that it is alone.
    pub(super) fn hold(database: &Path, shared_memory: &Path) -> Result<Self, FileError> {
        let mut locks = KeptLocks::default();
        for (path, range) in [(database, SHARED), (shared_memory, IN_USE)] {
            match locks.lock(path, range) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(FileError::InUse),
                Err(error) => log::debug!("{} has no lock that stays: {error}", path.display()),
            }
        }
        Ok(locks)
    }

    fn lock(&mut self, path: &Path, range: Range) -> io::Result<()> {
        let identity = FileId::of(path)?;
        let mut handles = handles();
        let file = match handles.entry(identity.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let file = File::open(path)?;
                if FileId::of_open(&file)? != identity {
                    return Err(io::Error::other("it was replaced"));
                }
                vacant.insert(file)
            }
        };
        set(file, libc::F_RDLCK, range)?;
        self.held.push((identity, range));
        Ok(())
    }
}

impl Drop for KeptLocks {
    fn drop(&mut self) {
        let handles = handles();
        for (identity, range) in &self.held {
            if let Some(file) = handles.get(identity)
                && let Err(error) = set(file, libc::F_UNLCK, *range)
            {
                log::debug!("a lock of a file stays until the program ends: {error}");
            }
        }
    }
}

/// Closes the handles that are of no use. Dropped after the connection was closed.
#[derive(Debug)]
pub(super) struct UnusedHandles;

impl Drop for UnusedHandles {
    fn drop(&mut self) {
        let mut handles = handles();
        if handles.is_empty() {
            return;
        }
        if let Ok(open) = open_files() {
            handles.retain(|identity, _| open.get(identity).is_some_and(|&number| number > 1));
        }
    }
}

/// Returns the number of handles of each file that this process has open.
fn open_files() -> io::Result<BTreeMap<FileId, usize>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        // That of the directory is gone in the end.
        if let Ok(file) = FileId::of(&entry?.path()) {
            *files.entry(file).or_default() += 1;
        }
    }
    Ok(files)
}

/// Sets or removes a lock of the open file description.
fn set(file: &File, kind: libc::c_int, range: Range) -> Result<(), Errno> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start,
        l_len: range.length,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
}

fn handles() -> MutexGuard<'static, BTreeMap<FileId, File>> {
    HANDLES.lock()
}
