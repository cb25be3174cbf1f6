//! Faults of the real kernel that a rebuild does not cure (E-47, E-50): strace makes thousands of
//! `epoll_wait` calls return early, be interrupted, or fail. This must not cause a storm of
//! rebuilds or of log lines.
//!
//! Linux only. Where strace is missing, the tests say so and pass, except where `CI=true`.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{end, metrics, one_loop, the_loop, watch},
    process::{Process, play, plays, strace_works},
    random::Random,
    servers::Echo,
    tcp::{ANY_PORT, connect, ping},
    wait::{done, wait_until_or},
};
use netwheel::{
    EventLoop,
    codec::RawBytes,
    metrics::LoopMetrics,
    prelude::*,
    time::{MissedRuns, Periodic},
};
use std::{
    io::{self, BufRead},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

// ---- the child ---------------------------------------------------------------------------------

/// Writes warnings and errors to standard error.
struct Log;

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

fn counter(metrics: &LoopMetrics, name: &str) -> u64 {
    match name {
        "polls" => metrics.polls,
        "premature" => metrics.wakes_premature,
        "interrupted" => metrics.wakes_interrupted,
        "errors" => metrics.poll_errors,
        "rebuilds" => metrics.rebuilds,
        "rests" => metrics.rests,
        other => panic!("no counter {other}"),
    }
}

/// One-shot timers in a chain and a periodic timer, checked when they fire.
#[derive(Default)]
struct Timers {
    stop: AtomicBool,
    fired: AtomicU64,
    beats: AtomicU64,
    early: AtomicU64,
}

impl Timers {
    fn beat(self: &Arc<Self>, event_loop: &EventLoop) -> Instant {
        let (me, begun) = (self.clone(), Instant::now());
        let body = move || {
            let n = me.beats.fetch_add(1, SeqCst);
            me.note(begun + MILLISECOND * u32::try_from(n + 1).unwrap());
            Ok(())
        };
        let periodic = Periodic::fixed_rate(MILLISECOND).missed_runs(MissedRuns::CatchUp);
        drop(event_loop.schedule_periodic(periodic, body).unwrap());
        begun
    }

    fn chain(self: Arc<Self>, event_loop: EventLoop) {
        if self.stop.load(SeqCst) {
            return;
        }
        let (me, again, due) = (self, event_loop.clone(), Instant::now() + 3 * MILLISECOND);
        let task = move || {
            me.fired.fetch_add(1, SeqCst);
            me.note(due);
            me.chain(again);
        };
        drop(event_loop.schedule(3 * MILLISECOND, task).unwrap());
    }

    fn note(&self, due: Instant) {
        self.early.fetch_add(u64::from(Instant::now() < due), SeqCst);
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// The child: an echo server that executes commands, one per line, and answers each with a line.
/// The commands are:
///
/// - `wait <counter> <n>`: answers when that counter of the loop has reached `n`;
/// - `task`: runs a task on the loop, and answers when it has run;
/// - `beat`: starts the timers;
/// - `beats`: waits until the periodic timer has run for every elapsed period, and answers with
///   that number and the number of early timers;
/// - anything else: answers with the counters.
#[test]
fn obedient_echo_server() {
    if !plays("obedient_echo_server") {
        return;
    }
    log::set_logger(&Log).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    println!("listening on {}", server.local_address());

    let event_loop = the_loop(&group).clone();
    let timers = Arc::new(Timers::default());
    let mut begun = None;
    for line in io::stdin().lock().lines() {
        let line = line.unwrap();
        match *line.split(' ').collect::<Vec<_>>() {
            ["wait", name, n] => {
                let n = n.parse().unwrap();
                watch(&event_loop, |metrics| counter(metrics, name) >= n);
            }
            ["task"] => done(event_loop.schedule(Duration::ZERO, || ()).unwrap().completion()).unwrap(),
            ["beat"] => {
                begun = Some(timers.beat(&event_loop));
                timers.clone().chain(event_loop.clone());
            }
            ["beats"] => {
                let due = (begun.unwrap().elapsed().as_millis() as u64).saturating_sub(1);
                wait_until_or(
                    || format!("{} of {due} beats", timers.beats.load(SeqCst)),
                    || timers.beats.load(SeqCst) >= due,
                );
                timers.stop.store(true, SeqCst);
                let (fired, early) = (timers.fired.load(SeqCst), timers.early.load(SeqCst));
                println!("due {due} fired {fired} early {early} ");
                continue;
            }
            _ => {}
        }
        let metrics = metrics(&group);
        let names = ["polls", "premature", "interrupted", "errors", "rebuilds", "rests"];
        let said: Vec<_> = names.iter().map(|name| format!("{name} {}", counter(&metrics, name))).collect();
        println!("counted {} ", said.join(" "));
    }
    end(&group);
}

// ---- the parent --------------------------------------------------------------------------------

/// Returns strace options that change what `epoll_wait` does in the calls that `when` selects.
fn fault(what: &str, when: &str) -> [String; 4] {
    let inject = format!("inject=?epoll_wait,?epoll_pwait:{what}:when={when}");
    ["-e".to_owned(), "trace=?epoll_wait,?epoll_pwait".to_owned(), "-e".to_owned(), inject]
}

/// The first affected call: late enough for a connection to be open.
const FROM: u64 = 60;

/// Number of echoes, for which a loop needs at least as many polls.
const ECHOES: usize = 100;

struct Child {
    process: Process,
    address: SocketAddr,
}

impl Child {
    /// Returns `None` where strace does not work.
    fn start(fault: &[String; 4]) -> Option<Self> {
        let options = fault.each_ref().map(String::as_str);
        if !strace_works(&options) {
            return None;
        }
        let mut process = Process::strace(&options, &play("obedient_echo_server"));
        let address = process.stdout.wait_for("listening on ").parse().unwrap();
        Some(Child { process, address })
    }

    /// Sends a command, and returns the numbers with these names from the answer.
    fn ask<const N: usize>(&mut self, line: &str, names: [&str; N]) -> [u64; N] {
        self.process.say(&format!("{line}\n"));
        let mark = if line == "beats" { "due" } else { "counted" };
        let answer = format!("{mark}{}", self.process.stdout.wait_for(mark));
        names.map(|name| {
            let numbers =
                answer.split_once(&format!("{name} ")).unwrap_or_else(|| panic!("{name}: {answer}")).1;
            numbers.split(' ').next().unwrap().parse().unwrap()
        })
    }

    fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Ends the child, and returns its log.
    fn log(mut self) -> Vec<String> {
        drop(self.process.take_stdin());
        let (_, log) = self.process.succeed();
        log.lines()
            .filter(|line| line.starts_with("WARN") || line.starts_with("ERROR"))
            .map(str::to_owned)
            .collect()
    }
}

fn count(log: &[String], part: &str) -> usize {
    log.iter().filter(|line| line.contains(part)).count()
}

fn pings(stream: &mut TcpStream, random: &mut Random, n: usize) {
    for _ in 0..n {
        let length = random.between(1, 2000);
        ping(stream, &random.bytes(length));
    }
}

// ---- premature returns -------------------------------------------------------------------------

/// Premature returns: enough for three rebuilds, and many more.
const PREMATURE: u64 = 5000;

#[test]
fn a_poll_that_no_rebuild_cures_causes_no_storm() {
    let when = format!("{FROM}..{}", FROM + PREMATURE - 1);
    let Some(mut child) = Child::start(&fault("retval=0", &when)) else { return };
    let (mut stream, mut random) = (child.connect(), Random::new(41));
    let peer = thread::spawn(move || {
        pings(&mut stream, &mut random, ECHOES);
        stream
    });
    // The loop rests: the poll reports nothing, but submitted tasks run.
    child.ask("wait rests 50", []);
    let [premature, rebuilds] = child.ask("task", ["premature", "rebuilds"]);
    assert!(premature < PREMATURE, "the task ran during the faults");
    assert_eq!(rebuilds, 3);

    let mut stream = peer.join().unwrap();
    let [premature, rebuilds, rests] = child.ask("", ["premature", "rebuilds", "rests"]);
    assert_eq!(rebuilds, 3);
    // Each task and each rebuild resets the count. Apart from that, every premature return is
    // followed by a rest.
    assert!(premature > PREMATURE - 20, "{premature}");
    assert!(rests >= premature - 6 * 512, "{rests} rests after {premature} premature returns");

    // The poll works again, so the loop sleeps and does not rest.
    ping(&mut child.connect(), b"a later one");
    pings(&mut stream, &mut Random::new(42), ECHOES);
    let [premature_after, rebuilds, rests_after] = child.ask("task", ["premature", "rebuilds", "rests"]);
    assert_eq!((premature_after, rebuilds, rests_after), (premature, 3, rests));
    let log = child.log();
    assert_eq!((count(&log, "poll rebuilt"), count(&log, "pausing for"), log.len()), (3, 1, 4), "{log:#?}");
}

// ---- interruptions -----------------------------------------------------------------------------

#[test]
fn interrupted_polls_are_not_counted() {
    // Every other call. With a timer every millisecond, there are more than a thousand
    // interruptions per second.
    let Some(mut child) = Child::start(&fault("error=EINTR", &format!("{FROM}+2"))) else { return };
    let mut stream = child.connect();
    child.ask("beat", []);
    let ended = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicUsize::new(0));
    let peer = thread::spawn({
        let (ended, rounds) = (ended.clone(), rounds.clone());
        move || {
            let mut random = Random::new(47);
            while !ended.load(SeqCst) {
                pings(&mut stream, &mut random, 1);
                rounds.fetch_add(1, SeqCst);
            }
        }
    });
    child.ask("wait interrupted 2000", []);
    let before = rounds.load(SeqCst);
    child.ask("wait interrupted 3000", []);
    ended.store(true, SeqCst);
    peer.join().unwrap();
    assert!(rounds.load(SeqCst) > before, "echoes continued");
    let [due, fired, early] = child.ask("beats", ["due", "fired", "early"]);
    assert!(due > 0 && fired > 0, "{due}, {fired}");
    assert_eq!(early, 0);
    let counted = child.ask("", ["premature", "rebuilds", "errors", "rests"]);
    assert_eq!(counted, [0; 4], "premature, rebuilds, errors, rests");
    assert_eq!(child.log(), [""; 0]);
}

#[test]
fn a_row_of_interrupted_polls_is_not_counted() {
    let when = format!("{FROM}..{}", FROM + 2999);
    let Some(mut child) = Child::start(&fault("error=EINTR", &when)) else { return };
    child.ask("beat", []);
    let mut stream = child.connect();
    pings(&mut stream, &mut Random::new(48), ECHOES);
    // An interrupted poll is repeated once without sleeping, and the repetition is interrupted too.
    let [interrupted] = child.ask("wait interrupted 1500", ["interrupted"]);
    assert_eq!(interrupted, 1500);
    assert_eq!(child.ask("beats", ["early"]), [0]);
    pings(&mut stream, &mut Random::new(49), ECHOES);
    assert_eq!(child.ask("task", ["premature", "rebuilds", "errors", "rests"]), [0; 4]);
    assert_eq!(child.log(), [""; 0]);
}

// ---- failures ----------------------------------------------------------------------------------

/// Checks that a poll that fails `times` times recovers.
fn assert_recovers(error: &str, when: &str, times: u64) {
    let Some(mut child) = Child::start(&fault(&format!("error={error}"), when)) else { return };
    let mut random = Random::new(50);
    let (mut stream, mut silent) = (child.connect(), child.connect());
    ping(&mut silent, b"before");
    pings(&mut stream, &mut random, ECHOES);
    ping(&mut silent, b"and afterwards");
    ping(&mut child.connect(), b"a later one");
    let [errors, rebuilds, premature, rests] =
        child.ask("task", ["errors", "rebuilds", "premature", "rests"]);
    assert_eq!((errors, rebuilds), (times, times), "each failure rebuilds the poll");
    assert_eq!((premature, rests), (0, 0));
    let log = child.log();
    assert_eq!((count(&log, "ERROR"), count(&log, "poll failed")), (1, 1), "{log:#?}");
    assert_eq!(
        (count(&log, "poll rebuilt (poll error): 3 sources moved, 0 closed"), log.len()),
        (1, 2),
        "{log:#?}"
    );
}

#[test]
fn e_50_a_poll_that_fails_once_is_replaced() {
    for error in ["EBADF", "ENOMEM"] {
        assert_recovers(error, &FROM.to_string(), 1);
    }
}

#[test]
fn e_50_a_poll_that_keeps_failing_is_logged_once_and_recovers() {
    let failures = 8;
    assert_recovers("EBADF", &format!("{FROM}..{}", FROM + failures - 1), failures);
}

#[test]
fn e_50_a_poll_that_fails_every_other_time_is_logged_once() {
    let failures = 20;
    assert_recovers("ENOMEM", &format!("{FROM}..{}+2", FROM + 2 * failures - 1), failures);
}
