//! `BootClock`, which counts suspended time, and loops whose clock must be read from time to time.
//!
//! A test cannot suspend the machine. It checks the precondition: the loop must read its clock from
//! time to time.

use crate::support::{
    loops::{settle, single, watch},
    wait::{HOUR, done, ms},
};
use netwheel::{
    EventLoop, EventLoopGroup,
    shutdown::ShutdownOptions,
    time::{Clock, SystemClock},
};
use std::time::{Duration, Instant};

/// Waits until the loop has woken `times` times at a deadline.
fn wakes_at_deadlines(event_loop: &EventLoop, times: u64) {
    watch(event_loop, |metrics| metrics.wakes_deadline >= times);
}

/// The system clock, with an optional limit on how long a loop may sleep.
#[derive(Debug)]
struct Restless(Option<Duration>);

impl Clock for Restless {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        self.0
    }
}

#[test]
fn a_loop_reads_its_clock_as_often_as_the_clock_requires() {
    let clock = Restless(Some(ms(10)));
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock));
    let before = Instant::now();
    let timer = event_loop.schedule(HOUR, || ()).unwrap();
    wakes_at_deadlines(&event_loop, 5);
    assert!(before.elapsed() >= ms(40), "at most every 10 ms");
    let metrics = event_loop.metrics();
    assert_eq!((metrics.timers_fired, metrics.wakes_premature, metrics.rebuilds), (0, 0, 0));
    // Reading the clock is not work: it does not prolong the quiet period of a shutdown.
    assert!(timer.cancel());
    done(group.shutdown(ShutdownOptions::new().quiet_period(ms(50)).timeout(HOUR))).unwrap();
}

#[test]
fn without_a_deadline_the_clock_is_not_read_regularly() {
    let (_group, event_loop) = single(EventLoopGroup::builder().clock(Restless(Some(Duration::ZERO))));
    settle(&event_loop);
    let metrics = event_loop.metrics();
    let timer = event_loop.schedule(ms(30), || ()).unwrap();
    done(timer.completion()).unwrap();
    settle(&event_loop);
    let then = event_loop.metrics();
    assert_eq!(metrics.wakes_deadline, 0);
    assert!(then.wakes_deadline <= 31, "a millisecond is the minimum: {then:?}");
    assert!(then.polls_without_sleep <= metrics.polls_without_sleep + 10, "the loop must not spin: {then:?}");
}

#[test]
fn without_a_longest_sleep_the_loop_sleeps_until_the_deadline() {
    let (_group, event_loop) = single(EventLoopGroup::builder().clock(Restless(None)));
    let timer = event_loop.schedule(ms(30), || ()).unwrap();
    done(timer.completion()).unwrap();
    // The poll may return slightly before the deadline on the clock.
    assert!(event_loop.metrics().wakes_deadline <= 2);
}

#[cfg(target_os = "linux")]
mod boot {
    use super::*;
    use netwheel::time::BootClock;

    #[test]
    fn it_advances_with_real_time_and_never_goes_back() {
        let (before, outer, inner) = (SystemClock.now(), BootClock.now(), SystemClock.now());
        let mut last = outer;
        while inner.elapsed() < ms(20) {
            let now = BootClock.now();
            assert!(now >= last);
            last = now;
        }
        // Each clock is read around the other one. The test assumes that the machine is not
        // suspended.
        let (inner, outer, before) = (inner.elapsed(), BootClock.now() - outer, before.elapsed());
        assert!(inner <= outer && outer <= before, "{inner:?}, {outer:?}, {before:?}");
        assert!(BootClock.longest_sleep().is_some_and(|longest| longest <= Duration::from_secs(1)));
        assert_eq!(SystemClock.longest_sleep(), None);
    }

    #[test]
    fn threads_agree_on_the_time() {
        let first = BootClock.now();
        let second = std::thread::spawn(|| BootClock.now()).join().unwrap();
        assert!(first <= second && second <= BootClock.now());
    }

    #[test]
    fn a_loop_with_a_boot_clock_fires_timers_on_time() {
        let (_group, event_loop) = single(EventLoopGroup::builder().clock(BootClock));
        for delay in [1, 7, 30] {
            let began = Instant::now();
            let timer = event_loop.schedule(ms(delay), || ()).unwrap();
            done(timer.completion()).unwrap();
            assert!(began.elapsed() >= ms(delay), "{:?}", began.elapsed());
        }
        assert_eq!(event_loop.metrics().wakes_premature, 0);
    }

    #[test]
    fn a_loop_with_a_boot_clock_reads_it_about_once_a_second() {
        let (_group, event_loop) = single(EventLoopGroup::builder().clock(BootClock));
        let began = Instant::now();
        let timer = event_loop.schedule(HOUR, || ()).unwrap();
        wakes_at_deadlines(&event_loop, 2);
        assert!(began.elapsed() >= Duration::from_millis(1900), "{:?}", began.elapsed());
        assert_eq!((event_loop.metrics().timers_fired, event_loop.metrics().wakes_premature), (0, 0));
        assert!(timer.cancel());
    }
}
