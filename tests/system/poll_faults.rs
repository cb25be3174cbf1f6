//! Faults of the real kernel (E-48): strace makes `epoll_wait` return early six hundred times in a
//! row, and makes writes to a loop's waker fail.
//!
//! Linux only. Where strace is missing, the tests say so and pass, except where `CI=true`.

#![cfg(target_os = "linux")]

use crate::support::{
    logs,
    loops::{end, metrics, one_loop, the_loop},
    process::{Process, play, plays, skip, strace_works},
    random::Random,
    servers::Echo,
    tcp::{ANY_PORT, connect, ping},
    wait::{receive, wait_until},
};
use netwheel::{codec::RawBytes, prelude::*};
use std::{
    io::{self, Read},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

/// Makes six hundred calls of a thread return at once without events. They start late enough for a
/// connection to be open (a few polls), and early enough that the [`ECHOES`] echoes reach them.
const FAULTS: &str = "inject=?epoll_wait,?epoll_pwait:retval=0:when=60..659";
const FAULT_COUNT: u64 = 600;

/// Each echo takes at least one poll that returns with I/O, so the faults have passed after this
/// many echoes.
const ECHOES: usize = 100;

/// Returns the strace options for [`FAULTS`].
fn faults() -> [&'static str; 4] {
    ["-e", "trace=?epoll_wait,?epoll_pwait", "-e", FAULTS]
}

// ---- the example -------------------------------------------------------------------------------

/// Returns the path of the example that `cargo test` has built beside this test.
fn example(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent()?.parent()?;
    Some(profile.join("examples").join(name)).filter(|path| path.is_file())
}

#[test]
fn e_48_an_echo_server_survives_six_hundred_premature_returns() {
    if !strace_works(&faults()) {
        return;
    }
    let Some(server) = example("echo_server") else {
        skip("echo_server is not built: `cargo build --examples` first, or run all of `cargo test`");
        return;
    };
    let command = [server.to_str().unwrap(), "--listen", ANY_PORT, "--threads", "1"];
    let mut server = Process::strace(&faults(), &command);
    let address: SocketAddr = server.stdout.wait_for("listening on ").parse().unwrap();

    // Connect before the faults start. Echo before, during and after them.
    let mut stream = connect(address);
    let mut random = Random::new(42);
    for _ in 0..ECHOES {
        let n = random.between(1, 2000);
        ping(&mut stream, &random.bytes(n));
    }
    // Shows that the listener was moved as well.
    ping(&mut connect(address), b"a later one");

    server.signal("INT");
    let (_, log) = server.succeed();
    assert_eq!(log.matches("poll rebuilt").count(), 1, "{log}");
    assert_eq!(log.matches("2 sources moved, 0 closed").count(), 1, "{log}");
}

// ---- a child of this program, which counts -----------------------------------------------------

/// Writes log records to standard error, and counts rebuilds. During a rebuild it holds the loop
/// until another thread has submitted a task.
struct Log {
    rebuilds: AtomicUsize,
    rebuilding: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

static LOG: Log = Log { rebuilds: AtomicUsize::new(0), rebuilding: Mutex::new(None) };

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        eprintln!("{} {text}", record.level());
        if text.contains("poll rebuilt") {
            self.rebuilds.fetch_add(1, SeqCst);
            if let Some((rebuilding, submitted)) = self.rebuilding.lock().unwrap().take() {
                rebuilding.send(()).unwrap();
                receive(&submitted);
            }
        }
    }

    fn flush(&self) {}
}

/// The child: an echo server, and a thread that submits tasks to the loop from the moment of the
/// rebuild on. At the end of its input it prints its counters.
#[test]
fn counting_echo_server() {
    if !plays("counting_echo_server") {
        return;
    }
    log::set_logger(&LOG).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let (rebuilding, told) = mpsc::channel();
    let (submitted, go_on) = mpsc::channel();
    *LOG.rebuilding.lock().unwrap() = Some((rebuilding, go_on));

    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    println!("listening on {}", server.local_address());

    let event_loop = the_loop(&group).clone();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let foreigner = thread::spawn(move || {
        // The first task is submitted in the middle of the rebuild. The others follow one by one
        // while the poll continues to return early, and afterwards, when only the moved waker can
        // wake the loop.
        receive(&told);
        for n in 0..1000 {
            let (sender, done) = mpsc::channel();
            let count = count.clone();
            let task = move || {
                count.fetch_add(1, SeqCst);
                sender.send(()).unwrap();
            };
            event_loop.execute(task).unwrap();
            if n == 0 {
                submitted.send(()).unwrap();
            }
            receive(&done);
        }
    });

    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    foreigner.join().unwrap();
    let metrics = metrics(&group);
    println!("logged {}", LOG.rebuilds.load(SeqCst));
    println!("rebuilds {}", metrics.rebuilds);
    println!("premature {}", metrics.wakes_premature);
    println!("awake {}", metrics.polls_without_sleep);
    println!("ran {}", ran.load(SeqCst));
    end(&group);
}

#[test]
fn e_48_one_rebuild_is_counted_and_tasks_from_other_threads_run() {
    if !strace_works(&faults()) {
        return;
    }
    let mut child = Process::strace(&faults(), &play("counting_echo_server"));
    let address: SocketAddr = child.stdout.wait_for("listening on ").parse().unwrap();
    let mut stream = connect(address);
    let mut random = Random::new(48);
    for _ in 0..ECHOES {
        let n = random.between(1, 2000);
        ping(&mut stream, &random.bytes(n));
    }
    ping(&mut connect(address), b"a later one");
    drop(child.take_stdin());
    let mut count = |what: &str| -> u64 { child.stdout.wait_for(what).trim().parse().unwrap() };
    assert_eq!(count("logged "), 1);
    assert_eq!(count("rebuilds "), 1);
    let premature = count("premature ");
    assert!((512..=FAULT_COUNT).contains(&premature), "{premature} premature returns");
    assert!(
        premature + count("awake ") >= FAULT_COUNT,
        "each fault is counted as premature or hits a poll without sleep"
    );
    assert_eq!(count("ran "), 1000);
    child.succeed();
}

// ---- the waker ---------------------------------------------------------------------------------

/// Returns strace options that make the first writes of each thread to the waker fail.
fn broken_waker(error: &str, writes: usize) -> Vec<String> {
    let inject = format!("inject=write:error={error}:when=1..{writes}");
    ["-P", "anon_inode:[eventfd]", "-e", "trace=write", "-e", &inject].map(str::to_owned).to_vec()
}

/// The child: a sequence of threads, each of which submits two tasks to a sleeping loop, one after
/// the other.
fn submit_to_a_sleeping_loop() {
    logs::collect();
    let group = one_loop();
    // The wake of this thread's first task fails if the loop is asleep by then; the second task's
    // succeeds.
    for _ in 0..2 {
        the_loop(&group).execute(|| ()).unwrap();
    }
    for n in 0..10 {
        wait_until("the loop sleeps", || is_asleep(&group));
        let event_loop = the_loop(&group).clone();
        let submitter = thread::spawn(move || {
            let (ran, runs) = mpsc::channel();
            for task in 0..2 {
                let ran = ran.clone();
                event_loop.execute(move || ran.send(task).unwrap()).unwrap();
            }
            // The loop may have polled between `is_asleep` and the first task, without a wake. Then
            // the wake that fails is the one for the second task, and this one is the next
            // submission.
            event_loop.execute(|| ()).unwrap();
            [receive(&runs), receive(&runs)]
        });
        println!("round {n} ran {:?}", submitter.join().unwrap());
    }
    let metrics = metrics(&group);
    println!("failed {}", metrics.wakes_failed);
    println!("written {}", metrics.wakes_written);
    println!("lines {}", logs::lines_with("cannot wake the loop").len());
    // The faults of this thread must have passed before the shutdown.
    for _ in 0..2 {
        the_loop(&group).execute(|| ()).unwrap();
    }
    end(&group);
}

/// Returns whether the loop is in its poll, or about to enter it.
fn is_asleep(group: &EventLoopGroup) -> bool {
    let metrics = metrics(group);
    metrics.turns == metrics.polls + 1
}

#[test]
fn sleeping_loop() {
    if plays("sleeping_loop") {
        submit_to_a_sleeping_loop();
    }
}

fn break_waker(error: &str, writes: usize) -> Option<(String, String)> {
    let options = broken_waker(error, writes);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    if !strace_works(&options) {
        return None;
    }
    Some(Process::strace(&options, &play("sleeping_loop")).succeed())
}

#[test]
fn a_wake_that_a_signal_interrupts_is_not_lost() {
    let Some((said, _)) = break_waker("EINTR", 3) else { return };
    assert_eq!(said.matches("ran [0, 1]").count(), 10, "{said}");
    assert!(said.contains("failed 0"), "{said}");
    assert!(!said.contains("written 0"), "the loop was asleep at least once: {said}");
}

#[test]
fn after_a_failed_wake_the_next_submitter_wakes_the_loop() {
    // All 16 attempts of the first wake fail. The second task's wake succeeds.
    let Some((said, _)) = break_waker("ENOSPC", 16) else { return };
    assert_eq!(said.matches("ran [0, 1]").count(), 10, "{said}");
    let failed =
        said.lines().find_map(|line| line.strip_prefix("failed ")).expect("the child prints the counter");
    assert!((1..=11).contains(&failed.parse::<usize>().unwrap()), "{said}");
    assert!(said.contains("lines 1"), "throttled: {said}");
}
