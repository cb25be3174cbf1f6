//! `OpenFiles`: notices that a file of an open store was moved, deleted or replaced.
//!
//! SQLite keeps writing to the files that it has opened, wherever they are by then. What it stores
//! in a file that has lost its name is gone after a restart.

use super::{file_error::FileError, file_id::FileId};
use std::path::PathBuf;

/// The files of a store, each with its identity when the store was opened.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    files: Vec<(PathBuf, FileId)>,
}

impl OpenFiles {
    /// Remembers which files have these names now. The last one is the database.
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Result<Self, FileError> {
        let mut files = Vec::new();
        for path in paths {
            let id = FileId::of(&path).map_err(|error| {
                FileError::failed(format!("cannot read the attributes of {}: {error}", path.display()))
            })?;
            files.push((path, id));
        }
        Ok(OpenFiles { files })
    }

    /// Returns the database, or `None` in memory.
    #[cfg(feature = "durable-sqlite")]
    pub(crate) fn database(&self) -> Option<FileId> {
        self.files.last().map(|(_, id)| id.clone())
    }

    /// Returns an error if another file, or none, has one of the names.
    ///
    /// The store has the files open, so the system does not use their identities again.
    pub(crate) fn check(&self) -> Result<(), FileError> {
        for (path, opened) in &self.files {
            if !FileId::of(path).is_ok_and(|found| found == *opened) {
                return Err(FileError::failed(format!(
                    "{} was moved, deleted or replaced while the store was open",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_moved_file_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let [log, database, moved] = ["a-wal", "a", "b"].map(|name| place.path().join(name));
        for path in [&log, &database] {
            fs::write(path, "").unwrap();
        }
        let files = OpenFiles::new([log.clone(), database]).unwrap();
        files.check().unwrap();
        fs::rename(&log, &moved).unwrap();
        files.check().unwrap_err();
        fs::write(&log, "").unwrap();
        files.check().unwrap_err();
        fs::rename(&moved, &log).unwrap();
        files.check().unwrap();
    }
}
