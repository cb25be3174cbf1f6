//! A signal ends a poll early and does not count as a reason to rebuild it (E-47). The signal stops
//! the whole process, so the test runs in a process of its own.

#![cfg(target_os = "linux")]

use crate::own_process;
use crate::support::{
    loops::{on, settle, single},
    wait::{PATIENCE, done, ms},
};
use netwheel::EventLoopGroup;
use std::{process::Command, time::Instant};

#[test]
fn e_47_an_interrupted_poll_is_not_premature() {
    own_process!();
    let (_group, event_loop) = single(EventLoopGroup::builder().rebuild_threshold(3));
    let far = event_loop.schedule(ms(3_600_000), || ()).unwrap();
    settle(&event_loop);
    let begun = Instant::now();
    while event_loop.metrics().wakes_interrupted < 10 {
        assert!(begun.elapsed() < PATIENCE, "never interrupted: {:?}", event_loop.metrics());
        // `epoll_wait` fails with EINTR when the process continues after a stop, without any signal
        // handler; see signal(7).
        let me = std::process::id();
        let script = format!("kill -STOP {me}; kill -CONT {me}");
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    }
    let metrics = event_loop.metrics();
    assert_eq!((metrics.wakes_premature, metrics.rebuilds, metrics.poll_errors), (0, 0, 0), "{metrics:?}");
    assert_eq!(on(&event_loop, || "a task"), "a task");
    let near = event_loop.schedule(ms(5), || "a timer").unwrap();
    assert_eq!(done(near.completion()).unwrap(), "a timer");
    assert!(!far.is_done() && far.cancel());
}
