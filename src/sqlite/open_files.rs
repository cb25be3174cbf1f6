//! `OpenFiles`: notices that a file of an open store was moved, deleted or replaced.
//!
//! SQLite keeps writing to the files that it has opened, wherever they are by then. What it stores
//! in a file that has lost its name is gone after a restart.

use super::{directory::Directory, file_error::FileError, file_id::FileId};
use std::{path::PathBuf, time::Instant};

/// The files of a store, each with its identity when the store was opened.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    files: Vec<(PathBuf, FileId)>,
    /// `None` if a change of a file's name may be one of another directory.
    directory: Option<Directory>,
}

impl OpenFiles {
    /// Remembers which files have these names now. They are beside each other, and the last one is
    /// the database.
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Result<Self, FileError> {
        let mut files = Vec::new();
        for path in paths {
            let id = FileId::of(&path).map_err(|error| {
                FileError::failed(format!("cannot read the attributes of {}: {error}", path.display()))
            })?;
            files.push((path, id));
        }
        let has_links = files.iter().any(|(path, _)| path.is_symlink());
        let database = files.last().filter(|_| !has_links);
        let directory = database.and_then(|(path, _)| Directory::new(path.parent()?));
        Ok(OpenFiles { files, directory })
    }

    /// Returns the database, or `None` in memory.
    #[cfg(feature = "durable-sqlite")]
    pub(crate) fn database(&self) -> Option<FileId> {
        self.files.last().map(|(_, id)| id.clone())
    }

    /// Returns an error if another file, or none, has one of the names.
    ///
    /// The store has the files open, so the system does not use their identities again. Mostly, a
    /// look at their directory is enough.
    #[allow(clippy::disallowed_methods, reason = "the time since a change of a directory is real time")]
    pub(crate) fn check(&mut self) -> Result<(), FileError> {
        self.check_at(Instant::now())
    }

    fn check_at(&mut self, now: Instant) -> Result<(), FileError> {
        let Some(directory) = &mut self.directory else { return check_names(&self.files) };
        if directory.is_unchanged(now) {
            return Ok(());
        }
        // A change after this look is seen by the next one.
        directory.look(now);
        check_names(&self.files).inspect_err(|_| directory.forget())
    }
}

fn check_names(files: &[(PathBuf, FileId)]) -> Result<(), FileError> {
    for (path, opened) in files {
        if !FileId::of(path).is_ok_and(|found| found == *opened) {
            return Err(FileError::failed(format!(
                "{} was moved, deleted or replaced while the store was open",
                path.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, time::Duration};

    #[test]
    fn a_moved_file_is_noticed_before_and_after_the_directory_is_known_to_be_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let [log, database, moved] = ["a-wal", "a", "b"].map(|name| place.path().join(name));
        for path in [&log, &database] {
            fs::write(path, "").unwrap();
        }
        let mut files = OpenFiles::new([log.clone(), database]).unwrap();
        let now = Instant::now();
        for seconds in [0, 0, 4, 4, 6] {
            let now = now + Duration::from_secs(seconds);
            files.check_at(now).unwrap();
            // Until the time of the directory is not that of an earlier change.
            while files.check_at(now).is_ok() {
                fs::rename(&log, &moved).unwrap();
                if files.check_at(now).is_err() {
                    break;
                }
                fs::rename(&moved, &log).unwrap();
            }
            files.check_at(now).unwrap_err();
            fs::rename(&moved, &log).unwrap();
            files.check_at(now).unwrap();
        }
    }
}
