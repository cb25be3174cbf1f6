//! What goes wrong around a child before it is killed.

use super::harm;
use crate::timers::File;
use netwheel::durable::{SqliteStore, StoreError, rusqlite::Connection};
use std::{fs, path::PathBuf};

/// An error that is injected: its name, the file of the store, the call and the error. Lack of
/// space is for some calls, and passes. Everything else is for all calls from some moment on. The
/// database file is written when the log is copied to it.
type Injected = (&'static str, &'static str, &'static str, &'static str);

const INJECTED: [Injected; 8] = [
    ("no space for the log", "-wal", "pwrite64", "ENOSPC"),
    ("no quota for the log", "-wal", "pwrite64", "EDQUOT"),
    ("the log reaches its largest size", "-wal", "pwrite64", "EFBIG"),
    ("the log cannot be written", "-wal", "pwrite64", "EIO"),
    ("the log cannot be synced", "-wal", "fsync", "EIO"),
    ("no space for the copy of the log", "", "pwrite64", "ENOSPC"),
    ("no quota for the copy of the log", "", "pwrite64", "EDQUOT"),
    ("the copy of the log cannot be synced", "", "fsync", "EIO"),
];

/// The kinds of faults that have a turn, one after the other. From `FIRST_DISK` on, these are
/// errors of the disk.
const TURNS: usize = 7;
pub(super) const FIRST_DISK: usize = 4;

pub(super) enum Fault {
    /// The child copies the file of its store, and makes backups. Another process does the same as
    /// below.
    Copies,
    /// Another process tries to open the store, and reads its file.
    SecondProcess,
    /// The child moves or replaces a file of its store. The file is moved back after the kill.
    Moves,
    /// The clock of the child is set, up to ten minutes ahead or behind.
    Jumps,
    /// Calls fail: the name of the error, and the command that injects it.
    Disk(&'static str, Vec<String>),
}

impl Fault {
    /// The names of all kinds.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        let others = [Fault::Copies, Fault::SecondProcess, Fault::Moves, Fault::Jumps];
        others.into_iter().map(|fault| fault.name()).chain(INJECTED.map(|(name, ..)| name))
    }

    /// Returns the fault of a kill. Each kind has its turn.
    pub(super) fn of_kill(number: usize, file: &File, random: &mut fastrand::Rng) -> Self {
        match number % TURNS {
            0 => Fault::Copies,
            1 => Fault::SecondProcess,
            2 => Fault::Moves,
            3 => Fault::Jumps,
            turn => {
                let injected =
                    INJECTED[(number / TURNS * (TURNS - FIRST_DISK) + turn - FIRST_DISK) % INJECTED.len()];
                Fault::Disk(injected.0, injection(injected, file, random))
            }
        }
    }

    /// Returns whether the kill waits until the fault has happened. Other kills come at any moment.
    /// So without the first ones, a kind of fault might not happen at all, or no error of the disk.
    pub(super) fn waits(number: usize) -> bool {
        number <= FIRST_DISK
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Fault::Copies => "backups and copies",
            Fault::SecondProcess => "a second process",
            Fault::Moves => "moved files",
            Fault::Jumps => "clocks that were set",
            Fault::Disk(name, _) => name,
        }
    }

    pub(super) fn mode(&self) -> &'static str {
        match self {
            Fault::Copies => "copies",
            Fault::Moves => "moves",
            Fault::Jumps => "jumps",
            Fault::SecondProcess | Fault::Disk(..) => "run",
        }
    }

    /// Returns the command that starts the child.
    pub(super) fn wrapper(&self) -> &[String] {
        if let Fault::Disk(_, strace) = self { strace } else { &[] }
    }

    /// Does what another process does while the child works. Returns whether this counts as the
    /// fault.
    pub(super) fn interfere(&self, file: &File) -> bool {
        if matches!(self, Fault::Copies | Fault::SecondProcess) {
            let second = SqliteStore::open(file.path());
            assert!(matches!(second, Err(StoreError::InUse)), "{second:?}");
            let reader = Connection::open(file.path()).unwrap();
            let count = reader.query_row("SELECT count(*) FROM timers", [], |row| row.get::<_, i64>(0));
            count.unwrap();
        }
        matches!(self, Fault::SecondProcess)
    }
}

impl Fault {
    /// Restores the files before the next start, as an operator would.
    pub(super) fn repair(&self, file: &File) {
        if matches!(self, Fault::Moves) {
            harm::move_back(&file.path());
        }
    }

    /// Returns the number of errors that were injected into this child.
    pub(super) fn injected(&self, file: &File) -> usize {
        if !matches!(self, Fault::Disk(..)) {
            return 0;
        }
        let trace = fs::read_to_string(trace_of(file)).unwrap_or_default();
        trace.lines().filter(|line| line.contains("(INJECTED)")).count()
    }
}

/// Returns the file to which strace writes.
fn trace_of(file: &File) -> PathBuf {
    file.path().with_extension("strace")
}

/// Returns a command that injects errors into some calls of a child.
fn injection((_, suffix, call, error): Injected, file: &File, random: &mut fastrand::Rng) -> Vec<String> {
    let path = file.path().with_extension(format!("db{suffix}"));
    // The database file is synced once for each copy of the log.
    let first = 1 + match (suffix, call) {
        ("", "fsync") => random.usize(..2),
        (_, "fsync") => random.usize(..40),
        ("", _) => random.usize(..40),
        _ => random.usize(..400),
    };
    let until = match error {
        "EIO" => "+".to_owned(),
        _ => format!("..{}", first + random.usize(..40)),
    };
    let trace = format!("trace={call}");
    let inject = format!("inject={call}:error={error}:when={first}{until}");
    let (path, output) = (path.to_str().unwrap(), trace_of(file));
    let output = output.to_str().unwrap();
    // With the filter, other calls do not stop the child. It does not inject signals.
    ["strace", "-f", "--seccomp-bpf", "-qq", "-o", output, "-P", path, "-e", &trace, "-e", &inject]
        .map(str::to_owned)
        .to_vec()
}

/// Checks and removes the backups that a child has completed. Returns their number.
pub(super) fn check_backups(file: &File, what: &str) -> usize {
    let mut backups = 0;
    for entry in fs::read_dir(file.path().parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        // Other files are beside them, such as that of the lock.
        if !name.starts_with("backup-") || !name.ends_with(|last: char| last.is_ascii_digit()) {
            continue;
        }
        let connection = Connection::open(&path).unwrap();
        let text = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(text("PRAGMA integrity_check"), "ok", "{what}: {name}");
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        let pending = number("SELECT count(*) FROM timers WHERE state = 0");
        assert_eq!(number("SELECT coalesce(sum(pending), 0) FROM topics"), pending, "{what}: {name}");
        drop(connection);
        drop(SqliteStore::open(&path).unwrap());
        fs::remove_file(path).unwrap();
        backups += 1;
    }
    backups
}
