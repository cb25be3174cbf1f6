//! Timers follow the clock of their event loops, also when it is set.

use crate::{
    support::{
        loops::{end, settle},
        wait::{HOUR, SECOND, done, ms, receive},
    },
    timers::{File, sending},
};
use netwheel::{EventLoopGroup, testing::ManualClock, time::Clock};
use std::time::Duration;

/// P-03.
#[test]
fn a_test_lets_days_pass() {
    let file = File::new();
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let (topic, runs) = sending("topic");
    let timers = file.open().topic(topic).start(&group).unwrap();
    done(timers.at("topic", 72 * HOUR, "in three days").start()).unwrap();
    done(timers.at("topic", clock.wall_time() + HOUR, "in an hour").start()).unwrap();
    clock.advance(HOUR - ms(1));
    settle(group.next());
    assert!(runs.try_recv().is_err());
    clock.advance(ms(1));
    assert_eq!(receive(&runs), "in an hour");
    clock.advance(72 * HOUR);
    assert_eq!(receive(&runs), "in three days");
    done(timers.close()).unwrap();
    end(&group);
}

/// P-17.
#[test]
fn timers_follow_a_clock_that_is_set() {
    let file = File::new();
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let (topic, runs) = sending("topic");
    let timers = file.open().topic(topic).start(&group).unwrap();
    let start = clock.wall_time();
    done(timers.at("topic", start + 10 * HOUR, "late").start()).unwrap();
    done(timers.at("topic", start + HOUR, "early").start()).unwrap();
    // Within a second of the monotonic clock, the jump is noticed.
    let passes = |time: Duration| {
        clock.advance(time);
        settle(group.next());
    };
    passes(SECOND);
    clock.set_wall_time(start + HOUR);
    passes(SECOND);
    assert_eq!(receive(&runs), "early");
    clock.set_wall_time(start);
    passes(SECOND);
    passes(10 * HOUR - 2 * SECOND);
    assert!(runs.try_recv().is_err());
    passes(2 * SECOND);
    assert_eq!(receive(&runs), "late");
    assert_eq!(timers.metrics().clock_jumps, 2);
    done(timers.close()).unwrap();
    end(&group);
}
