//! Loops without descriptors for their polls (E-48, E-62). The limit applies to the whole process,
//! so each test runs in a process of its own.

#![cfg(target_os = "linux")]

use crate::own_process;
use crate::support::{
    logs,
    loops::{on, settle, single},
    resources::{DescriptorLimit, descriptors},
    servers::echo_server,
    tcp::{assert_echoes, connect},
    wait::{done, ms, wait_until},
};
use netwheel::{EventLoopGroup, shutdown::ShutdownOptions};
use std::fs::{self, DirEntry};

/// Waits for loop threads to end. A thread closes its last descriptor, the waker's, shortly after
/// the end of the loop is reported.
fn wait_for_ends() {
    let is_loop = |entry: DirEntry| {
        fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.starts_with("netwheel-"))
    };
    // A listing may omit a thread while others end, so a single listing is not enough.
    let mut listings_without = 0;
    wait_until("the threads of the loops end", || {
        let found = fs::read_dir("/proc/self/task").unwrap().flatten().any(is_loop);
        listings_without = if found { 0 } else { listings_without + 1 };
        listings_without == 10
    });
}

#[test]
fn e_48_if_no_new_poll_can_be_opened_the_old_one_is_kept() {
    own_process!();
    logs::collect();
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, _failed) = echo_server(&group);
    let mut peer = connect(server.local_address());
    assert_echoes(&mut peer);
    // First without any descriptor, then with one for the poll but none for its waker.
    for more in [0, 1] {
        let limit = DescriptorLimit::leave(more);
        assert!(done(event_loop.rebuild_poll().unwrap()).is_err());
        assert_echoes(&mut peer);
        drop(limit);
    }
    assert_eq!(event_loop.metrics().rebuilds, 0);
    let lines = logs::lines_with("keeping the old one");
    assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("INFO")), "{lines:?}");
    assert_eq!(on(&event_loop, || "a task"), "a task");
    assert_eq!(done(event_loop.schedule(ms(1), || "a timer").unwrap().completion()).unwrap(), "a timer");

    done(event_loop.rebuild_poll().unwrap()).unwrap();
    assert_eq!(event_loop.metrics().rebuilds, 1);
    assert_echoes(&mut peer);
    assert_echoes(&mut connect(server.local_address()));
    done(group.shutdown(ShutdownOptions::new().quiet_period(ms(0)).timeout(ms(60_000)))).unwrap();
}

#[test]
fn e_62_a_group_that_cannot_be_built_leaves_nothing_behind() {
    own_process!();
    let before = descriptors();
    let limit = DescriptorLimit::leave(20);
    let error = EventLoopGroup::builder().threads(100).build().expect_err("there are not enough descriptors");
    drop(limit);
    assert_eq!(error.to_string(), "opening a poll failed");
    assert_eq!(descriptors(), before);
}

#[test]
fn e_62_a_group_that_was_never_used_leaves_nothing_behind() {
    own_process!();
    let before = descriptors();
    let group = EventLoopGroup::builder().threads(20).build().unwrap();
    assert!(descriptors() > before);
    drop(group);
    assert_eq!(descriptors(), before);

    let group = EventLoopGroup::builder().threads(20).build().unwrap();
    for event_loop in group.event_loops() {
        settle(event_loop);
    }
    done(group.shutdown(ShutdownOptions::new().quiet_period(ms(0)).timeout(ms(60_000)))).unwrap();
    drop(group);
    wait_for_ends();
    assert_eq!(descriptors(), before);
}
