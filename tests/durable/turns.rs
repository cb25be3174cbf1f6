//! Turns of the loop: when handlers are called, and how many.

use crate::{support::wait::ms, timers::sending};
use netwheel::{
    EventLoopGroup,
    durable::{Due, DurableTimers, Late, MemoryDisk, Retry, Topic},
    group::ManualEventLoop,
    testing::ManualClock,
};
use std::{sync::mpsc::channel, time::Duration};

/// Runs turns until the loop and the store have nothing to do.
fn settle(by_hand: &mut ManualEventLoop, timers: &DurableTimers) {
    while by_hand.run_once(Duration::ZERO) > 0 {}
    by_hand.run_until(timers.counts()).unwrap();
    while by_hand.run_once(Duration::ZERO) > 0 {}
}

/// It does not take another turn, in which the loop would poll again.
#[test]
fn a_timer_fires_in_the_turn_in_which_its_time_has_come() {
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap();
    let (topic, runs) = sending("topic");
    let store = MemoryDisk::new().open().unwrap();
    let timers = DurableTimers::builder(store).topic(topic).start(by_hand.group()).unwrap();
    for _ in 0..20 {
        by_hand.run_until(timers.at("topic", ms(100), "payload").start()).unwrap();
        settle(&mut by_hand, &timers);
        clock.advance(ms(99));
        by_hand.run_once(Duration::ZERO);
        assert!(runs.try_recv().is_err(), "early");
        settle(&mut by_hand, &timers);
        clock.advance(ms(2));
        by_hand.run_once(Duration::ZERO);
        assert_eq!(runs.try_recv().as_deref(), Ok("payload"));
    }
    by_hand.run_until(timers.close()).unwrap();
}

/// The answers of the handlers wake the loop as well, in the same turns. Time passes in each
/// handler, so the timer of the next poll expires in them too.
#[test]
fn a_turn_calls_a_limited_number_of_handlers() {
    const TIMERS: usize = 300;
    const PER_TURN: usize = 7;
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap();
    let (sender, runs) = channel();
    let time = clock.clone();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        time.advance(Duration::from_nanos(1));
        sender.send(()).unwrap();
        due.done();
    });
    let builder = DurableTimers::builder(MemoryDisk::new().open().unwrap()).fires_per_turn(PER_TURN);
    let timers = builder.topic(topic).start(by_hand.group()).unwrap();
    for _ in 0..TIMERS {
        by_hand.run_until(timers.at("topic", ms(100), "payload").start()).unwrap();
    }
    settle(&mut by_hand, &timers);
    clock.advance(ms(101));
    let mut counts = Vec::new();
    while counts.iter().sum::<usize>() < TIMERS {
        by_hand.run_once(Duration::from_secs(10));
        counts.push(runs.try_iter().count());
    }
    assert!(counts.iter().all(|count| *count <= PER_TURN), "{counts:?}");
    assert_eq!(counts[0], PER_TURN);
    by_hand.run_until(timers.close()).unwrap();
}
