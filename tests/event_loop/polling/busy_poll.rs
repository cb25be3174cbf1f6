//! Loops that poll for a while before they sleep. The manual clock stands still, so the test
//! controls how long they poll.

use crate::support::{
    loops::{manual, on, single, watch},
    wait::{done, wait_until},
};
use netwheel::{EventLoop, EventLoopGroup, shutdown::ShutdownOptions, testing::ManualClock};
use std::time::Duration;

const WINDOW: Duration = Duration::from_millis(50);

/// Returns a loop that has just started to poll, its clock, and its count of wakes. A new loop may
/// have slept before.
fn busy() -> (EventLoop, ManualClock, u64) {
    let clock = ManualClock::new();
    let (_, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).busy_poll(WINDOW));
    on(&event_loop, || ());
    let woken = event_loop.metrics().wakes_written;
    (event_loop, clock, woken)
}

/// Waits until the loop has polled `times` more times without sleeping.
fn polls_on(event_loop: &EventLoop, times: u64) {
    let goal = event_loop.metrics().polls_without_sleep + times;
    watch(event_loop, |metrics| metrics.polls_without_sleep >= goal);
}

/// Waits until the loop sleeps, which is when a submission has to wake it. Advances the clock by
/// almost nothing.
fn falls_asleep(event_loop: &EventLoop, clock: &ManualClock) {
    let before = event_loop.metrics().wakes_written;
    wait_until("a wake", || {
        clock.advance(Duration::from_nanos(1));
        event_loop.metrics().wakes_written > before
    });
}

#[test]
fn after_work_a_loop_polls_for_the_window_and_then_sleeps() {
    let (event_loop, clock, woken) = busy();
    polls_on(&event_loop, 2000);
    clock.advance(WINDOW - Duration::from_nanos(1));
    polls_on(&event_loop, 2000);
    assert_eq!(event_loop.metrics().wakes_written, woken, "the loop needs no wake");

    clock.advance(Duration::from_nanos(1));
    falls_asleep(&event_loop, &clock);
    // A wake without work does not restart the window.
    falls_asleep(&event_loop, &clock);
    on(&event_loop, || ());
    polls_on(&event_loop, 2000);
    let metrics = event_loop.metrics();
    assert_eq!((metrics.wakes_premature, metrics.rebuilds), (0, 0));
}

#[test]
fn a_submitter_does_not_wake_a_loop_that_polls() {
    let (event_loop, _clock, woken) = busy();
    for _ in 0..100 {
        on(&event_loop, || ());
        polls_on(&event_loop, 3);
    }
    assert_eq!(event_loop.metrics().wakes_written, woken);
}

#[test]
fn work_restarts_the_window_and_timers_fire_in_it() {
    let (event_loop, clock, woken) = busy();
    let timer = event_loop.schedule(WINDOW * 2, || ()).unwrap();
    for _ in 0..3 {
        clock.advance(WINDOW / 2);
        on(&event_loop, || ());
        polls_on(&event_loop, 100);
    }
    assert!(!timer.is_done());
    clock.advance(WINDOW / 2);
    done(timer.completion()).unwrap();
    polls_on(&event_loop, 100);
    clock.advance(WINDOW - Duration::from_nanos(1));
    polls_on(&event_loop, 100);
    assert_eq!(event_loop.metrics().wakes_written, woken, "the timer counts as work");
    clock.advance(Duration::from_nanos(1));
    falls_asleep(&event_loop, &clock);
}

#[test]
fn by_default_a_loop_sleeps_at_once() {
    let (event_loop, clock) = manual();
    for _ in 0..20 {
        on(&event_loop, || ());
        falls_asleep(&event_loop, &clock);
    }
    let metrics = event_loop.metrics();
    assert!(metrics.polls_without_sleep <= 21, "{metrics:?}");
}

#[test]
fn a_loop_that_polls_shuts_down() {
    let (event_loop, _clock, _) = busy();
    let ended = event_loop
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)));
    done(ended).unwrap();

    let (event_loop, clock, _) = busy();
    let ended = event_loop.shutdown(ShutdownOptions::new().quiet_period(WINDOW * 4).timeout(WINDOW * 8));
    polls_on(&event_loop, 100);
    clock.advance(WINDOW * 4);
    done(ended).unwrap();
}
