//! The thread of a stand-alone timer costs nothing while no timeout is due. It makes no system call
//! in ten seconds with ten thousand timeouts an hour away. Later timeouts and cancelled ones do not
//! wake it either.
//!
//! Linux only. Where strace is missing or may not attach, the test says so and passes, except where
//! `CI=true`.

#![cfg(target_os = "linux")]

use crate::support::{
    process::{Output, Process, play, plays, strace_works, thread_of},
    wait::HOUR,
};
use netwheel::{Error, timer::HashedWheelTimer};
use std::{io, sync::mpsc::channel, time::Duration};

const TIMEOUTS: usize = 10_000;

const THREAD: &str = "idle-timer";

/// The child: a timer with many timeouts, which executes the commands that it reads until the end
/// of its input.
#[test]
fn idle_timer() {
    if !plays("idle_timer") {
        return;
    }
    let timer = HashedWheelTimer::builder().thread_name(THREAD).build().unwrap();
    let add = |delay| timer.new_timeout(delay, |_| Ok(())).unwrap();
    let mut timeouts: Vec<_> = (0..TIMEOUTS).map(|_| add(HOUR)).collect();
    // Wait until the thread runs, because then it has its name.
    let (sender, receiver) = channel();
    timer.new_timeout(Duration::ZERO, move |_| sender.send(()).map_err(Error::other)).unwrap();
    receiver.recv().unwrap();
    println!("added");
    let mut soonest = HOUR;
    for line in io::stdin().lines() {
        match line.unwrap().as_str() {
            // First timeouts that are due after the next wakeup, then fewer cancellations than
            // would wake the thread.
            "later" => timeouts.extend((0..1000).map(|n| add(HOUR + Duration::from_secs(n)))),
            "cancel" => timeouts.drain(..1000).for_each(|timeout| assert!(timeout.cancel())),
            "sooner" => {
                soonest /= 2;
                timeouts.push(add(soonest));
            }
            _ => panic!("an unknown command"),
        }
        println!("done");
    }
    println!("left {}", timer.stop().unwrap().len());
}

#[test]
fn ten_seconds_of_ten_thousand_pending_timeouts_make_no_system_call() {
    if !strace_works(&[]) {
        return;
    }
    let mut process = Process::start(&play("idle_timer"));
    process.stdout.wait_for("added");
    // `env` has become the child, so the process id is right.
    let its_thread = thread_of(process.id(), THREAD);
    let Some(mut strace) = Process::attach(&[], &its_thread) else { return };
    let mut tell = |word: &str| {
        process.say(&format!("{word}\n"));
        process.stdout.wait_for("done");
    };
    // Shows that strace sees how the thread wakes for an earlier timeout and sleeps again.
    // strace shows the call in progress at its start in different ways, so skip all of this.
    tell("sooner");
    until_sleep(&mut strace.stderr);
    strace.stderr.within(Duration::from_secs(1));

    tell("later");
    tell("cancel");
    let calls = strace.stderr.within(Duration::from_secs(10));
    assert_eq!(calls, "", "system calls of an idle timer");

    // Shows that strace was attached all the time.
    tell("sooner");
    until_sleep(&mut strace.stderr);
    drop(strace);
    drop(process.take_stdin());
    assert_eq!(process.stdout.wait_for("left ").trim(), (TIMEOUTS + 2).to_string());
    process.succeed();
}

/// Waits until the trace shows that the thread goes to sleep.
fn until_sleep(trace: &mut Output) {
    trace.wait_until("a sleep", |text| text.contains("futex(").then_some(((), text.len())));
}
