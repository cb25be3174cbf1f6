//! The clock that counts suspended time, and loops on clocks that have to be looked at (user-asks 3.1).
//!
//! A suspend itself cannot be made here; what it needs is that a loop looks at its clock now and then.

use crate::support::{
    loops::{settle, single},
    wait::{HOUR, PATIENCE, done, ms},
};
use netwheel::{Clock, EventLoop, EventLoopGroup, SystemClock};
use std::time::{Duration, Instant};

/// Waits until the loop has woken so often at a deadline; a test that fails does not wait for ever.
fn wakes_at_deadlines(event_loop: &EventLoop, times: u64) {
    let began = Instant::now();
    while event_loop.metrics().wakes_deadline < times {
        assert!(began.elapsed() < PATIENCE, "it does not wake");
        std::thread::yield_now();
    }
}

/// The system's clock, to be looked at every ten milliseconds.
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
fn a_loop_looks_at_a_clock_that_wants_it_as_often_as_that_says() {
    let clock = Restless(Some(ms(10)));
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock));
    let before = Instant::now();
    let timer = event_loop.schedule(HOUR, || ()).unwrap();
    wakes_at_deadlines(&event_loop, 5);
    assert!(before.elapsed() >= ms(40), "not more often");
    let metrics = event_loop.metrics();
    assert_eq!((metrics.timers_fired, metrics.wakes_premature, metrics.rebuilds), (0, 0, 0));
    // A look at the clock is no work: it does not keep a shutdown from being quiet.
    assert!(timer.cancel());
    done(group.shutdown_gracefully(ms(50), HOUR)).unwrap();
}

#[test]
fn without_a_deadline_there_is_no_need_to_look() {
    let (_group, event_loop) = single(EventLoopGroup::builder().clock(Restless(Some(Duration::ZERO))));
    settle(&event_loop);
    let metrics = event_loop.metrics();
    let timer = event_loop.schedule(ms(30), || ()).unwrap();
    done(timer.completion()).unwrap();
    settle(&event_loop);
    let then = event_loop.metrics();
    assert_eq!(metrics.wakes_deadline, 0);
    assert!(then.wakes_deadline <= 31, "a millisecond is the least: {then:?}");
    assert!(then.polls_without_sleep <= metrics.polls_without_sleep + 10, "it does not spin: {then:?}");
}

#[test]
fn a_clock_of_its_own_is_slept_by_until_the_deadline() {
    let (_group, event_loop) = single(EventLoopGroup::builder().clock(Restless(None)));
    let timer = event_loop.schedule(ms(30), || ()).unwrap();
    done(timer.completion()).unwrap();
    // The poll may be let go a moment before the time that the clock tells.
    assert!(event_loop.metrics().wakes_deadline <= 2);
}

#[cfg(target_os = "linux")]
mod boot {
    use super::*;
    use netwheel::BootClock;

    #[test]
    fn it_advances_with_real_time_and_never_goes_back() {
        let (before, outer, inner) = (SystemClock.now(), BootClock.now(), SystemClock.now());
        let mut last = outer;
        while inner.elapsed() < ms(20) {
            let now = BootClock.now();
            assert!(now >= last);
            last = now;
        }
        // Each is read around the other one, and nobody suspends the machine meanwhile.
        let (inner, outer, before) = (inner.elapsed(), BootClock.now() - outer, before.elapsed());
        assert!(inner <= outer && outer <= before, "{inner:?}, {outer:?}, {before:?}");
        assert!(BootClock.longest_sleep().is_some_and(|longest| longest <= Duration::from_secs(1)));
        assert_eq!(SystemClock.longest_sleep(), None);
    }

    #[test]
    fn threads_agree_on_it() {
        let first = BootClock.now();
        let second = std::thread::spawn(|| BootClock.now()).join().unwrap();
        assert!(first <= second && second <= BootClock.now());
    }

    #[test]
    fn a_loop_on_it_fires_its_timers_and_not_early() {
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
    fn a_loop_on_it_looks_at_it_about_once_a_second() {
        let (_group, event_loop) = single(EventLoopGroup::builder().clock(BootClock));
        let began = Instant::now();
        let timer = event_loop.schedule(HOUR, || ()).unwrap();
        wakes_at_deadlines(&event_loop, 2);
        assert!(began.elapsed() >= Duration::from_millis(1900), "{:?}", began.elapsed());
        assert_eq!((event_loop.metrics().timers_fired, event_loop.metrics().wakes_premature), (0, 0));
        assert!(timer.cancel());
    }
}
