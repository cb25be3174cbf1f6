//! `FileId`: which file a path leads to.

use std::{io, path::Path};

/// Equal for two paths that lead to the same file, for example through a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileId(Id);

/// The device and the number of a file.
#[cfg(unix)]
type Id = (u64, u64);

/// Files that SQLite has open cannot be moved or deleted there.
#[cfg(windows)]
type Id = std::path::PathBuf;

impl FileId {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        id(path).map(FileId)
    }
}

#[cfg(unix)]
fn id(path: &Path) -> io::Result<Id> {
    use std::os::unix::fs::MetadataExt;

    path.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(windows)]
fn id(path: &Path) -> io::Result<Id> {
    path.canonicalize()
}
