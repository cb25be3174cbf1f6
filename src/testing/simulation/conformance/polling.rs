//! Causes for which a poll returns.

use super::runner::check;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(1);

#[test]
fn a_poll_without_events_ends_with_its_timeout() {
    check(|bench| {
        bench.note_poll(0, Duration::ZERO);
        bench.note_poll(0, SHORT);
    });
}

#[test]
fn a_wake_before_the_poll_is_not_lost() {
    check(|bench| {
        bench.wake(0);
        let patience = bench.backend.patience();
        bench.note_poll(0, patience);
        bench.note_poll(0, SHORT);
    });
}

#[test]
fn wakes_are_merged() {
    check(|bench| {
        for _ in 0..3 {
            bench.wake(0);
        }
        bench.note_poll(0, Duration::ZERO);
        bench.note_poll(0, Duration::ZERO);
        bench.wake(0);
        bench.note_poll(0, Duration::ZERO);
    });
}

#[test]
fn a_wake_belongs_to_its_poll() {
    check(|bench| {
        let second = bench.open_poll();
        bench.wake(second);
        bench.note_poll(0, SHORT);
        bench.note_poll(second, SHORT);
        bench.note_poll(second, SHORT);
    });
}

#[test]
fn sockets_precede_the_waker() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 1);
        bench.wait_for(server, crate::channel::driver::Ready::READABLE);
        bench.settle();
        bench.write(client, 1);
        bench.settle();
        bench.deregister(server).unwrap();
        bench.register(server).unwrap();
        bench.wake(0);
        let patience = bench.backend.patience();
        bench.note_poll(0, patience);
    });
}
