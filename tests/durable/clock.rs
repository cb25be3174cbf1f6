//! Timers follow the clock of their event loops, also when it is set.

use crate::{
    support::{
        loops::{end, settle},
        wait::{HOUR, SECOND, done, ms, receive, wait_until},
    },
    timers::{File, sending},
};
use netwheel::{
    EventLoopGroup,
    durable::{Due, DurableTimers, Late, MemoryDisk, Retry, TimerFilter, Topic},
    testing::ManualClock,
    time::Clock,
};
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

/// The engine notices a jump within a second, and believes it after a minute. A program that starts
/// its next timer much later does not begin to doubt then.
#[test]
fn a_delay_counts_from_a_new_time_that_timers_follow_already() {
    let file = File::new();
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let (topic, runs) = sending("topic");
    let timers = file.open().topic(topic).start(&group).unwrap();
    let passes = |time: Duration| {
        clock.advance(time);
        settle(group.next());
    };
    done(timers.at("topic", 2400 * HOUR, "far").start()).unwrap();
    passes(SECOND);
    clock.set_wall_time(clock.wall_time() + 240 * HOUR);
    (0..70).for_each(|_| passes(SECOND));
    let now = clock.wall_time();
    let id = done(timers.at("topic", HOUR, "in an hour").start()).unwrap();
    let listed = done(timers.list(TimerFilter::new())).unwrap();
    let due = listed.iter().find(|info| info.id == id).unwrap().due;
    assert!(due >= now + HOUR, "{due:?} is before {:?}", now + HOUR);
    (0..3).for_each(|_| passes(SECOND));
    assert!(runs.try_recv().is_err());
    done(timers.close()).unwrap();
    end(&group);
}

/// A key whose end has the time of a clock that was ten years ahead is free when the clock is right
/// again, and not in ten years.
#[test]
fn a_key_that_ended_while_the_clock_was_ahead_is_free_afterwards() {
    let clock = ManualClock::new();
    let right = clock.wall_time();
    clock.set_wall_time(right + 10 * 365 * 24 * HOUR);
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let (topic, runs) = sending("topic");
    let timers = DurableTimers::builder(MemoryDisk::new().open().unwrap()).topic(topic);
    let timers = timers.start(&group).unwrap();
    let first = done(timers.at("topic", ms(0), "ahead").key("key").start()).unwrap();
    assert_eq!(receive(&runs), "ahead");
    wait_until("the run ends", || timers.metrics().ended == 1);
    clock.set_wall_time(right);
    let second = done(timers.at("topic", ms(0), "right").key("key").start()).unwrap();
    assert_ne!(first, second);
    settle(group.next());
    assert_eq!(receive(&runs), "right");
    wait_until("the run ends", || timers.metrics().ended == 2);
    let third = done(timers.at("topic", ms(0), "again").key("key").start()).unwrap();
    assert_eq!(second, third, "the end of the second one is remembered");
    done(timers.close()).unwrap();
    end(&group);
}

/// An operator removes or retries all dead letters, also those that died before the clock was set
/// back.
#[test]
fn dead_letters_from_before_the_clock_was_set_back_are_retried_and_removed() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), |due: Due<String>| due.fail("always"));
    let timers = DurableTimers::builder(MemoryDisk::new().open().unwrap()).topic(topic);
    let timers = timers.start(&group).unwrap();
    for _ in 0..3 {
        done(timers.at("topic", ms(0), "dies").start()).unwrap();
    }
    let are_dead = || timers.metrics().dead == 3;
    wait_until("three dead letters", are_dead);
    clock.set_wall_time(clock.wall_time() - HOUR);
    assert_eq!(done(timers.retry_dead("topic", ms(0))).unwrap(), 3);
    settle(group.next());
    wait_until("three dead letters again", are_dead);
    clock.set_wall_time(clock.wall_time() - HOUR);
    assert_eq!(done(timers.remove_dead("topic")).unwrap(), 3);
    done(timers.close()).unwrap();
    end(&group);
}
