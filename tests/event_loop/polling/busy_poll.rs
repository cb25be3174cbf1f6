//! Loops that poll for a while before they sleep. Time stands still here, so the while is as long as the test wants.

use crate::support::{
    loops::{manual, on, single},
    wait::{PATIENCE, done},
};
use netwheel::{EventLoop, EventLoopGroup, testing::ManualClock};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_millis(50);

/// A loop that has just begun to poll, and how often it was woken until then: it may have been asleep when it was
/// new.
fn busy() -> (EventLoop, ManualClock, u64) {
    let clock = ManualClock::new();
    let (_, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).busy_poll(WINDOW));
    on(&event_loop, || ());
    let woken = event_loop.metrics().wakes_written;
    (event_loop, clock, woken)
}

/// Waits for something that takes real time; a test that fails does not wait for ever.
fn wait_until(is_met: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_met() {
        assert!(began.elapsed() < PATIENCE, "it does not happen");
        std::thread::yield_now();
    }
}

/// Waits until the loop has polled so often again without sleeping.
fn polls_on(event_loop: &EventLoop, times: u64) {
    let goal = event_loop.metrics().polls_without_sleep + times;
    wait_until(|| event_loop.metrics().polls_without_sleep >= goal);
}

/// Waits until somebody has to wake the loop, which is when it sleeps. Moves the time by next to nothing.
fn falls_asleep(event_loop: &EventLoop, clock: &ManualClock) {
    let before = event_loop.metrics().wakes_written;
    wait_until(|| {
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
    assert_eq!(event_loop.metrics().wakes_written, woken, "nobody has to wake it");

    clock.advance(Duration::from_nanos(1));
    falls_asleep(&event_loop, &clock);
    // Being woken for nothing is no work.
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
fn work_begins_the_window_anew_and_timers_fire_in_it() {
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
    assert_eq!(event_loop.metrics().wakes_written, woken, "the timer was work");
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
    let ended = event_loop.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5));
    done(ended).unwrap();

    let (event_loop, clock, _) = busy();
    let ended = event_loop.shutdown_gracefully(WINDOW * 4, WINDOW * 8);
    polls_on(&event_loop, 100);
    clock.advance(WINDOW * 4);
    done(ended).unwrap();
}
