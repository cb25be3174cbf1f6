//! Nodes with wrong clocks: timers follow the clock of the database.

use super::server::server;
use crate::{
    support::{
        loops::{end, single},
        wait::{HOUR, done, ms, receive, wait_until},
    },
    wrong_clock::WrongClock,
};
use netwheel::{
    EventLoopGroup,
    durable::{Due, DurableTimers, Late, Retry, TimerFilter, Topic},
};
use std::{
    sync::mpsc::{Receiver, channel},
    time::{Duration, SystemTime},
};

const HOUR_MILLIS: i64 = 3_600_000;

/// The instant of a handler, and the due time.
type Fired = (SystemTime, SystemTime);

/// Returns a node that sends the instant of each handler call, and the due time.
fn node(schema: &str, clock: WrongClock) -> Option<(EventLoopGroup, DurableTimers, Receiver<Fired>)> {
    let store = server()?.builder(schema).open().unwrap();
    let (group, _) = single(EventLoopGroup::builder().clock(clock).wheel_tick(ms(1)));
    let (sender, fired) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<()>| {
        sender.send((SystemTime::now(), due.scheduled())).unwrap();
        due.done();
    });
    let timers = DurableTimers::builder(store).topic(topic).start(&group).unwrap();
    Some((group, timers, fired))
}

#[test]
fn a_node_whose_clock_is_ahead_fires_by_the_clock_of_the_database() {
    let clock = WrongClock::ahead_by(HOUR_MILLIS);
    let Some((group, timers, fired)) = node("ahead", clock.clone()) else { return };
    wait_until("the clocks were compared", || timers.metrics().clock_skew > 3_590_000);
    let begun = SystemTime::now();
    for n in 0..20 {
        done(timers.at("topic", begun + ms(200 + 20 * n), &()).start()).unwrap();
    }
    done(timers.at("topic", begun + HOUR / 2, &()).start()).unwrap();
    for n in 0..20 {
        let (at, scheduled) = receive(&fired);
        assert!(at >= scheduled, "{n} was early by {:?}", scheduled.duration_since(at));
        // The clock jumps while the timers fire.
        clock.set_ahead_by(clock.is_ahead_by() + 24 * HOUR_MILLIS);
    }
    assert!(fired.try_recv().is_err(), "half an hour early");
    assert_eq!(timers.metrics().clock_jumps, 0);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn a_delay_on_a_node_whose_clock_is_behind_counts_from_the_present() {
    let clock = WrongClock::ahead_by(-HOUR_MILLIS);
    let Some((group, timers, fired)) = node("behind_by_an_hour", clock) else { return };
    let begun = SystemTime::now();
    done(timers.at("topic", HOUR, &()).start()).unwrap();
    done(timers.at("topic", Duration::ZERO, &()).start()).unwrap();
    let (_, scheduled) = receive(&fired);
    assert!(scheduled.duration_since(begun - ms(1000)).is_ok(), "not an hour ago");
    let listed = done(timers.list(TimerFilter::default())).unwrap();
    assert!(listed.iter().any(|timer| timer.due >= begun + HOUR - ms(1000)), "{listed:?}");
    done(timers.close()).unwrap();
    end(&group);
}
