//! `Directory`: whether a name in a directory may have changed.
//!
//! Moving, deleting or replacing a file changes the times of its directory. So one system call
//! tells that several files still have their names.
//!
//! Invariants: a system stores times in steps, and a second change within a step is not visible. So
//! the times count only after they have not changed for longer than a step. A mount over a file
//! changes no time, and some file systems do not keep these times. So they count for a second at
//! most.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Longer than the steps of a kernel's clock.
const STEP: Duration = Duration::from_millis(100);

/// Longer than the steps of a file system that stores seconds: FAT stores every other one.
const LONG_STEP: Duration = Duration::from_secs(3);

/// The longest time between two looks at the files themselves.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    state: State,
    /// When this state was seen first.
    since: Instant,
    /// When the files were looked at while the times counted.
    looked: Option<Instant>,
}

impl Directory {
    /// `None` on systems without the call.
    pub(super) fn new(path: &Path) -> Option<Self> {
        State::of(path).map(|_| Directory { path: path.to_owned(), seen: None })
    }

    /// Returns whether no name has changed since a [look](Directory::look) after which the files
    /// were in place.
    pub(super) fn is_unchanged(&self, now: Instant) -> bool {
        self.seen.as_ref().is_some_and(|seen| {
            let is_recent = |looked: Instant| now.saturating_duration_since(looked) < LOOK_AGAIN;
            seen.looked.is_some_and(is_recent) && State::of(&self.path) == Some(seen.state)
        })
    }

    /// Looks at the times, before the caller looks at the files.
    pub(super) fn look(&mut self, now: Instant) {
        match &mut self.seen {
            // Just changed: another change may not be visible.
            Some(seen) if now.saturating_duration_since(seen.since) < seen.state.step() => {
                seen.looked = None;
            }
            Some(seen) if State::of(&self.path) == Some(seen.state) => seen.looked = Some(now),
            _ => self.seen = State::of(&self.path).map(|state| Seen { state, since: now, looked: None }),
        }
    }

    /// Forgets the times, because a file was not in its place.
    pub(super) fn forget(&mut self) {
        self.seen = None;
    }
}

/// The identity and the times of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    device: (u32, u32),
    number: u64,
    /// Seconds and nanoseconds.
    changed: (i64, u32),
    modified: (i64, u32),
}

impl State {
    fn step(&self) -> Duration {
        if self.changed.1 == 0 || self.modified.1 == 0 { LONG_STEP } else { STEP }
    }

    #[cfg(target_os = "linux")]
    fn of(path: &Path) -> Option<Self> {
        use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

        let wanted = StatxFlags::INO | StatxFlags::CTIME | StatxFlags::MTIME;
        let found = statx(CWD, path, AtFlags::empty(), wanted).ok()?;
        let has_all = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
        has_all.then_some(State {
            device: (found.stx_dev_major, found.stx_dev_minor),
            number: found.stx_ino,
            changed: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
            modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn of(_path: &Path) -> Option<Self> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs;

    /// Renames a file, later than anything that has happened to its directory.
    fn rename(directory: &Directory, from: &Path, to: &Path) {
        let before = State::of(&directory.path);
        fs::rename(from, to).unwrap();
        while State::of(&directory.path) == before {
            fs::rename(to, from).unwrap();
            fs::rename(from, to).unwrap();
        }
    }

    #[test]
    fn names_are_unchanged_only_after_a_look_at_times_that_are_old_enough() {
        let place = tempfile::tempdir().unwrap();
        let [path, moved] = ["a", "b"].map(|name| place.path().join(name));
        fs::write(&path, "").unwrap();
        let mut directory = Directory::new(place.path()).unwrap();
        let begun = Instant::now();
        let after = |time: Duration| begun + time;

        directory.look(begun);
        assert!(!directory.is_unchanged(begun), "the next change may have the same time");
        directory.look(after(LONG_STEP));
        assert!(directory.is_unchanged(after(LONG_STEP)));
        fs::write(&path, "contents").unwrap();
        assert!(directory.is_unchanged(after(LONG_STEP)), "only names count");
        assert!(!directory.is_unchanged(after(LONG_STEP + LOOK_AGAIN)), "it was long ago");

        rename(&directory, &path, &moved);
        assert!(!directory.is_unchanged(after(LONG_STEP)));
        directory.look(after(LONG_STEP));
        assert!(!directory.is_unchanged(after(LONG_STEP)), "another change may have the same time");
        directory.look(after(2 * LONG_STEP));
        assert!(directory.is_unchanged(after(2 * LONG_STEP)));
        directory.forget();
        assert!(!directory.is_unchanged(after(2 * LONG_STEP)));
    }

    #[test]
    fn another_directory_with_the_name_is_a_change() {
        let place = tempfile::tempdir().unwrap();
        let [path, moved] = ["a", "b"].map(|name| place.path().join(name));
        fs::create_dir(&path).unwrap();
        let mut directory = Directory::new(&path).unwrap();
        let now = Instant::now();
        directory.look(now);
        directory.look(now + LONG_STEP);
        assert!(directory.is_unchanged(now + LONG_STEP));
        fs::rename(&path, &moved).unwrap();
        assert!(!directory.is_unchanged(now + LONG_STEP), "there is none");
        fs::create_dir(&path).unwrap();
        assert!(!directory.is_unchanged(now + LONG_STEP));
    }
}
