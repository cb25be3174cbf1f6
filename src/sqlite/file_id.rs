//! `FileId`: which file a path leads to.

#[cfg(unix)]
use std::fs::File;
use std::{io, path::Path};

/// Equal for two paths that lead to the same file, for example through a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(Id);

/// The device and the number of a file.
#[cfg(unix)]
type Id = (u64, u64);

/// Files that SQLite has open cannot be moved or deleted there.
#[cfg(windows)]
type Id = std::path::PathBuf;

impl FileId {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        id(path).map(FileId)
    }

    #[cfg(unix)]
    pub(super) fn of_open(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| FileId(of_metadata(&metadata)))
    }
}

/// Asks for the number only. Reading the times of a file makes the next write to it store a new
/// time (multigrain timestamps, Linux 6.13). The `fsync` of each commit would write that time.
#[cfg(target_os = "linux")]
fn id(path: &Path) -> io::Result<Id> {
    use rustix::{
        fs::{AtFlags, CWD, StatxFlags, makedev, statx},
        io::Errno,
    };

    match statx(CWD, path, AtFlags::empty(), StatxFlags::INO) {
        Ok(found) => Ok((makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)),
        Err(Errno::NOSYS) => path.metadata().map(|metadata| of_metadata(&metadata)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn id(path: &Path) -> io::Result<Id> {
    path.metadata().map(|metadata| of_metadata(&metadata))
}

#[cfg(unix)]
fn of_metadata(metadata: &std::fs::Metadata) -> Id {
    use std::os::unix::fs::MetadataExt;

    (metadata.dev(), metadata.ino())
}

#[cfg(windows)]
fn id(path: &Path) -> io::Result<Id> {
    path.canonicalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_an_open_file_have_the_same_identity() {
        let directory = tempfile::tempdir().unwrap();
        let [path, other] = ["a", "b"].map(|name| directory.path().join(name));
        let file = std::fs::File::create(&path).unwrap();
        std::fs::write(&other, "").unwrap();
        #[cfg(unix)]
        assert_eq!(FileId::of(&path).unwrap(), FileId::of_open(&file).unwrap());
        assert_ne!(FileId::of(&path).unwrap(), FileId::of(&other).unwrap());
        assert!(FileId::of(&directory.path().join("c")).is_err());
        drop(file);
    }
}
