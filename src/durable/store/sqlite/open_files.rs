//! `OpenFiles`: notices that a file of an open store was moved, deleted or replaced.
//!
//! SQLite keeps writing to the files that it has opened, wherever they are by then. What it stores
//! in a file that has lost its name is gone after a restart.

use super::file_id::FileId;
use crate::durable::StoreError;
use std::path::PathBuf;

/// The files of a store, each with its identity when the store was opened.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: Vec<(PathBuf, FileId)>,
}

impl OpenFiles {
    /// Remembers which files have these names now. The last one is the database.
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Result<Self, StoreError> {
        let mut files = Vec::new();
        for path in paths {
            let id = FileId::of(&path).map_err(|error| {
                StoreError::failed(format!("cannot read the attributes of {}: {error}", path.display()))
            })?;
            files.push((path, id));
        }
        Ok(OpenFiles { files })
    }

    /// Returns the database, or `None` in memory.
    pub(super) fn database(&self) -> Option<FileId> {
        self.files.last().map(|(_, id)| id.clone())
    }

    /// Returns an error if another file, or none, has one of the names.
    ///
    /// The store has the files open, so the system does not use their identities again.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        for (path, opened) in &self.files {
            if !FileId::of(path).is_ok_and(|found| found == *opened) {
                return Err(StoreError::failed(format!(
                    "{} was moved, deleted or replaced while the store was open",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}
