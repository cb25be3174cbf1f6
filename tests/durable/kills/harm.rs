//! Faults inside the process that is killed.

use super::child::{FAR, say, start};
use crate::{support::wait::ms, wrong_clock::WrongClock};
use netwheel::{EventLoop, durable::DurableTimers};
use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

/// The files of a store that a program or an operator may delete, move or replace.
const SUFFIXES: [&str; 3] = ["", "-wal", "-lock"];

/// The largest difference between the clock of a child and that of the system, in milliseconds.
/// Timers that are far away are still far away then.
pub(super) const LARGEST_JUMP: i64 = 600_000;

/// The numbers of timers that are started here.
const OWN: Range<u64> = 1 << 50..1 << 51;

/// Makes backups, and copies the file, which drops the POSIX locks of the process.
pub(super) fn copy(timers: &DurableTimers, file: &Path) {
    for number in 0.. {
        let name = format!("backup-{}-{number}", std::process::id());
        timers.backup_to(file.with_file_name(name)).wait().unwrap();
        fs::copy(file, file.with_extension("copy")).unwrap();
        say(format_args!("fault"));
    }
}

/// Returns a file of a store, and its name when it was moved.
fn names(file: &Path, suffix: &str) -> [PathBuf; 2] {
    ["db", "away"].map(|extension| file.with_extension(format!("{extension}{suffix}")))
}

/// Moves a file of the store away after some starts, and may put a copy in its place. The next
/// start must fail, because no file with the right name has it.
pub(super) fn move_away(timers: &DurableTimers, file: &Path, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..random.u32(..15) {
        let _ = start(timers, "plain", random.u64(OWN), ms(random.u64(..60))).recv();
    }
    let [path, away] = names(file, SUFFIXES[random.usize(..SUFFIXES.len())]);
    fs::rename(&path, &away).unwrap();
    if random.bool() {
        fs::copy(&away, &path).unwrap();
    }
    match start(timers, "plain", random.u64(OWN), FAR).recv() {
        Ok(Some(id)) => say(format_args!("stored in a lost file: {id}")),
        _ => say(format_args!("fault")),
    }
}

/// Moves a file back that [`move_away`] has moved.
pub(super) fn move_back(file: &Path) {
    for suffix in SUFFIXES {
        let [path, away] = names(file, suffix);
        if away.exists() {
            fs::rename(away, path).unwrap();
        }
    }
}

/// Sets the clock to random times, again and again.
///
/// The loop sets it, so that this does not happen between the engine's look and a handler.
pub(super) fn jump(event_loop: &EventLoop, clock: WrongClock, mut random: fastrand::Rng) {
    let same_loop = event_loop.clone();
    let set = move || {
        clock.set_ahead_by(random.i64(-LARGEST_JUMP..=LARGEST_JUMP));
        say(format_args!("fault"));
        jump(&same_loop, clock, random);
    };
    drop(event_loop.schedule(ms(fastrand::u64(1..40)), set).unwrap());
}
