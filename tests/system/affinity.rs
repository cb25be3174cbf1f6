//! Loops pinned to cores.
//!
//! Linux only, because only Linux reports on which cores a thread may run.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{on, single},
    process::{Process, play, plays, strace_works},
    wait::done,
};
use netwheel::{Error, EventLoopGroup, shutdown::ShutdownOptions};
use std::{fs, time::Duration};

/// Returns the cores on which the calling thread may run.
fn allowed() -> Vec<usize> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let numbers = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        from.parse().unwrap()..=to.parse().unwrap()
    };
    list.split(',').flat_map(numbers).collect()
}

#[test]
fn each_loop_runs_on_its_core_round_robin() {
    let before = allowed();
    let cores: Vec<_> = before.iter().rev().copied().take(3).collect();
    let group = EventLoopGroup::builder().threads(5).pin_to(cores.iter().copied()).build().unwrap();
    for (n, event_loop) in group.event_loops().iter().enumerate() {
        assert_eq!(on(event_loop, allowed), [cores[n % cores.len()]], "loop {n}");
    }
    assert_eq!(allowed(), before, "the thread that builds the group is not pinned");
    let free = EventLoopGroup::builder().threads(1).build().unwrap();
    assert_eq!(on(free.next(), allowed), before);
}

#[test]
fn a_core_that_does_not_exist_is_refused() {
    for cores in [vec![4711], vec![allowed()[0], 4711]] {
        let Err(Error::Setting(refused)) = EventLoopGroup::builder().pin_to(cores).build() else {
            panic!("built with a core that does not exist")
        };
        assert_eq!((refused.setting(), refused.value()), ("pin_to", "4711"));
    }
    let Err(Error::Setting(refused)) = EventLoopGroup::builder().pin_to([]).build() else {
        panic!("built without a core")
    };
    assert_eq!((refused.setting(), refused.allowed()), ("pin_to", "one core or more"));
}

/// The child: a group of one pinned loop, which runs a task.
#[test]
fn pinned_loop() {
    if !plays("pinned_loop") {
        return;
    }
    env_logger::init();
    let (group, event_loop) = single(EventLoopGroup::builder().name("stuck").pin_to([allowed()[0]]));
    on(&event_loop, || println!("the loop runs"));
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5))))
        .unwrap();
}

#[test]
fn a_loop_that_cannot_be_pinned_runs_nevertheless() {
    const FAULT: &[&str] = &["-e", "inject=sched_setaffinity:error=EPERM"];
    if !strace_works(FAULT) {
        return;
    }
    let (out, errors) = Process::strace(FAULT, &play("pinned_loop")).succeed();
    assert!(out.contains("the loop runs"), "{out}");
    assert_eq!(errors.matches("stuck-0: the thread cannot be pinned to core").count(), 1, "{errors}");
}
