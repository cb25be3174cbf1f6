//! A worker pool that cannot start more threads: the existing threads do the work, and the error is
//! logged once.
//!
//! Linux only. Where strace is missing, the test says so and passes, except where `CI=true`.

#![cfg(target_os = "linux")]

use crate::support::process::{Process, play, plays, strace_works};
use crate::support::wait::PATIENCE;
use netwheel::worker_pool::WorkerPool;
use std::sync::mpsc::{Receiver, channel};

const WORKS: u32 = 100;

/// Lets each thread start one more thread, and makes all further starts fail.
const NO_MORE: [&str; 4] = ["-e", "trace=clone,clone3", "-e", "inject=clone,clone3:error=EAGAIN:when=2+"];

fn next<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(PATIENCE).expect("the task did not run")
}

/// The child.
#[test]
fn short_of_threads() {
    if !plays("short_of_threads") {
        return;
    }
    env_logger::builder().filter_level(log::LevelFilter::Warn).init();
    let pool = WorkerPool::builder().threads(4).build().unwrap();
    let (release, released) = channel::<()>();
    let (begun, begins) = channel();
    let first = move || {
        begun.send(()).unwrap();
        let _ = released.recv_timeout(PATIENCE);
    };
    assert!(pool.execute(first).is_ok());
    next(&begins);
    let (ran, runs) = channel();
    for n in 0..WORKS {
        let ran = ran.clone();
        assert!(pool.execute(move || ran.send(n)).is_ok(), "there is a thread, though it is busy");
    }
    assert_eq!(pool.metrics().threads, 1);
    drop(release);
    assert!((0..WORKS).all(|n| next(&runs) == n));
    println!("all tasks have run");
}

#[test]
fn a_pool_that_cannot_start_more_threads_continues_and_logs_the_error_once() {
    if !strace_works(&NO_MORE) {
        return;
    }
    let child = Process::strace(&NO_MORE, &play("short_of_threads"));
    let (said, log) = child.succeed();
    assert!(said.contains("all tasks have run"), "{said}");
    assert_eq!(log.matches("cannot start another thread").count(), 1, "{log}");
}
