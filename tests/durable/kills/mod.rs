//! Timers survive kills: at random moments, and at each system call.
//!
//! A child process works with a store and reports the store's answers and its handlers' actions on
//! its standard output. It is killed, started again on the same store, and at the end left alone
//! until nothing is pending. The oracle then checks everything that was said.
//!
//! `KILLS=10000 cargo test --release --features rusqlite-040 --test durable kills -- --nocapture`
//! makes more kills than the gate does, and prints a table. `cargo test` makes fewer.

mod child;
mod faults;
mod harm;
mod oracle;
mod outbox;

use crate::{
    support::process::{play, plays, strace_works},
    timers::File,
};
use faults::{Fault, check_backups};
use oracle::Oracle;
use std::{
    cmp::Ordering,
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

/// Kills at random moments in the gate, which sets `KILLS`.
const KILLS: usize = 100;

/// Kills at random moments if `KILLS` is not set.
const FEW_KILLS: usize = 30;

/// Kills amid faults in the gate, which take longer. Each kind of fault has its turn.
const KILLS_AMID_FAULTS: usize = 30;

/// In a run with this many kills, each kind of error has to be injected.
const MANY_KILLS: usize = 1000;

/// The largest number of lines for which a kill waits for its fault.
const LONGEST_WAIT: usize = 10_000;

/// How often a store is killed before it is left alone.
const KILLS_PER_STORE: usize = 10;

/// The system calls that change files, and in the gate the distance between two calls at which a
/// child is killed. The scenario makes some hundreds of the frequent ones.
const CALLS: &[(&str, usize)] = &[
    ("openat", 61),
    ("pwrite64", 17),
    ("fdatasync", 3),
    ("fsync", 3),
    ("ftruncate", 1),
    ("unlink", 1),
    ("write", 13),
];

#[test]
fn workload() {
    if plays("workload") {
        let mode = std::env::var(child::MODE).unwrap();
        if outbox::is_mode(&mode) {
            return outbox::main(&mode);
        }
        child::main();
    }
}

/// Starts a child. `wrapper` is a program that starts it.
fn start(file: &File, mode: &str, seed: u64, wrapper: &[String]) -> Child {
    let mut command = play("workload");
    let settings = [
        format!("{}={}", child::FILE, file.path().display()),
        format!("{}={mode}", child::MODE),
        format!("{}={seed}", child::SEED),
    ];
    command.splice(1..1, settings);
    let command: Vec<String> = wrapper.iter().cloned().chain(command).collect();
    let child = Command::new(&command[0]).args(&command[1..]).stdout(Stdio::piped()).spawn();
    child.unwrap()
}

/// Reads the output of a child, and kills it after `lines` lines. Returns whether it was killed.
fn listen(child: Child, oracle: &mut Oracle, lines: usize) -> bool {
    listen_and(child, oracle, lines, |_| true)
}

/// Like [`listen`], and calls a closure after each line. Only lines count for which it returns
/// `true`.
fn listen_and(
    mut child: Child,
    oracle: &mut Oracle,
    lines: usize,
    mut counts: impl FnMut(&Oracle) -> bool,
) -> bool {
    oracle.life_begins();
    // That of the child itself, also if a wrapper has started it.
    let mut id = child.id().to_string();
    let mut number = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        // The harness prints lines of its own, and the beginning of the first one.
        let Some((_, said)) = line.as_deref().ok().and_then(|line| line.split_once('@')) else { continue };
        if let Some(said) = said.strip_prefix("process ") {
            id = said.to_owned();
            continue;
        }
        oracle.hears(said);
        if number == lines {
            continue;
        }
        number += usize::from(counts(oracle));
        if number == lines {
            let killed = Command::new("kill").args(["-KILL", &id]).status();
            assert!(killed.unwrap().success());
        }
    }
    !child.wait().unwrap().success()
}

/// Runs a child until nothing is pending, and checks everything.
fn drain_and_check(file: &File, oracle: &mut Oracle, what: &str, mode: &str) {
    let child = start(file, mode, 0, &[]);
    assert!(!listen(child, oracle, usize::MAX), "{what}: the last child failed");
    oracle.check(&file.path(), what);
}

fn kills() -> usize {
    std::env::var("KILLS").map_or(FEW_KILLS, |kills| kills.parse().expect("KILLS is a number"))
}

/// Returns the distance between two system calls at which a child is killed. `distance` is that of
/// the gate.
fn distance_for(distance: usize) -> usize {
    match kills().cmp(&KILLS) {
        Ordering::Less => 3 * distance,
        Ordering::Equal => distance,
        Ordering::Greater => 1,
    }
}

#[test]
fn kills_at_random_moments_lose_nothing() {
    let first_seed = fastrand::u64(..);
    let mut total = oracle::Totals::default();
    for store in 0..kills().div_ceil(KILLS_PER_STORE) {
        let seed = first_seed.wrapping_add(store as u64);
        let mut random = fastrand::Rng::with_seed(seed);
        let (file, mut oracle) = (File::new(), Oracle::default());
        for _ in 0..KILLS_PER_STORE {
            let lines = random.usize(1..150);
            let child = start(&file, "run", random.u64(..), &[]);
            assert!(listen(child, &mut oracle, lines), "the child ends by a kill only");
        }
        drain_and_check(&file, &mut oracle, &format!("seed {seed}"), "drain");
        total.add(&oracle);
        if store % 100 == 99 {
            eprintln!("{}", total.row("random moments", (store + 1) * KILLS_PER_STORE));
        }
    }
    eprintln!("{}\n{}", oracle::Totals::HEAD, total.row("random moments", kills()));
    assert!(total.starts > kills(), "the children were killed before they did anything: {total:?}");
}

/// The disk fails, files are moved, the clock is set, backups are made, and other processes open
/// the files.
#[test]
fn kills_amid_faults_of_the_environment_lose_nothing() {
    let options = "--seccomp-bpf -P /tmp -e trace=fsync -e inject=fsync:error=EIO:when=1";
    if !strace_works(&options.split(' ').collect::<Vec<_>>()) {
        return;
    }
    let first_seed = fastrand::u64(..);
    let kills = if kills() > KILLS { kills() } else { KILLS_AMID_FAULTS };
    let mut total = oracle::Totals::default();
    let mut backups = 0;
    let mut happened: BTreeMap<&str, usize> = Fault::names().map(|name| (name, 0)).collect();
    for store in 0..kills.div_ceil(KILLS_PER_STORE) {
        let seed = first_seed.wrapping_add(store as u64);
        let mut random = fastrand::Rng::with_seed(seed);
        let (file, mut oracle) = (File::new(), Oracle::default());
        oracle.ahead_before = harm::LARGEST_JUMP.unsigned_abs();
        let what = format!("seed {seed}");
        for kill in 0..KILLS_PER_STORE {
            let number = store * KILLS_PER_STORE + kill;
            let fault = Fault::of_kill(number, &file, &mut random);
            let lines = random.usize(1..300);
            let child = start(&file, fault.mode(), random.u64(..), fault.wrapper());
            let before = oracle.faults;
            let (mut heard, mut interferences) = (0, 0);
            let ended = listen_and(child, &mut oracle, lines, |oracle| {
                heard += 1;
                if heard % 50 == 10 {
                    interferences += usize::from(fault.interfere(&file));
                }
                !Fault::waits(number)
                    || oracle.faults > before
                    || interferences > 0
                    || fault.injected(&file) > 0
                    || heard > LONGEST_WAIT
            });
            assert!(ended, "{what}: the child ends by a kill, or because it cannot open its store");
            let times = oracle.faults - before + interferences + fault.injected(&file);
            fault.repair(&file);
            *happened.entry(fault.name()).or_default() += times;
            backups += check_backups(&file, &what);
        }
        drain_and_check(&file, &mut oracle, &what, child::DRAIN_AHEAD);
        total.add(&oracle);
    }
    eprintln!("{}\n{}", oracle::Totals::HEAD, total.row("random moments, with faults", kills));
    eprintln!("{backups} complete backups, {happened:?}");
    assert!(total.starts > kills, "the children were killed before they did anything: {total:?}");
    assert!(backups > 0, "no backup was complete");
    // In a short run, most children are killed before their disk fails.
    let by_disk = |name: &str| Fault::names().skip(faults::FIRST_DISK).any(|error| error == name);
    let missing = |(name, times): &(&&str, &usize)| **times == 0 && (kills >= MANY_KILLS || !by_disk(name));
    assert_eq!(happened.iter().filter(missing).collect::<Vec<_>>(), [], "faults that did not happen");
    assert!(happened.iter().any(|(name, times)| *times > 0 && by_disk(name)), "no error was injected");
}

#[test]
fn kills_at_system_calls_lose_nothing() {
    if !strace_works(&["-e", "trace=fdatasync", "-e", "inject=fdatasync:signal=KILL:when=1"]) {
        return;
    }
    eprintln!("{}", oracle::Totals::HEAD);
    let mut all = 0;
    for (call, distance) in CALLS {
        let every = distance_for(*distance);
        let mut total = oracle::Totals::default();
        let mut killed = 0;
        let mut when = 1 + fastrand::usize(..every);
        loop {
            let inject = format!("inject={call}:signal=KILL:when={when}");
            let trace = format!("trace={call}");
            let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let (file, mut oracle) = (File::new(), Oracle::default());
            let child = start(&file, "scenario", 0, &strace.map(str::to_owned));
            if !listen(child, &mut oracle, usize::MAX) {
                break;
            }
            killed += 1;
            drain_and_check(&file, &mut oracle, &format!("{call} {when}"), "drain");
            total.add(&oracle);
            when += every;
        }
        all += killed;
        eprintln!("{}", total.row(&format!("`{call}`"), killed));
    }
    let fewest = if kills() < KILLS { 5 } else { 20 };
    assert!(all > fewest, "{all} kills at system calls");
}
