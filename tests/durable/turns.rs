//! Turns of the loop: when handlers are called, and how many.

use crate::{
    support::wait::{ms, wait_until},
    timers::sending,
};
use netwheel::{
    EventLoopGroup,
    durable::{
        Due, DurableTimers, Late, MemoryDatabase, MemoryDisk, MemoryStore, Retry, StoreError, TimerFilter,
        TimerInfo, TimerStore, Topic, TopicCounts,
        store::{Change, ClockReading, Lease, LoadRange, Loaded, Outcome},
    },
    group::ManualEventLoop,
    testing::ManualClock,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    time::Duration,
};

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

/// A store of several nodes whose leases are not renewed while the flag is set.
struct Renewing {
    store: MemoryStore,
    fails: Arc<AtomicBool>,
}

impl TimerStore for Renewing {
    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        self.store.attach(topics)
    }

    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError> {
        self.store.commit(changes, now)
    }

    fn load(&mut self, range: LoadRange) -> Result<Loaded, StoreError> {
        self.store.load(range)
    }

    fn list(&mut self, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
        self.store.list(filter)
    }

    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError> {
        self.store.counts()
    }

    fn needs_claims(&self) -> bool {
        self.store.needs_claims()
    }

    fn renew(&mut self, busy: &BTreeSet<u32>) -> Result<Option<Lease>, StoreError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(StoreError::Busy("injected".into()));
        }
        self.store.renew(busy)
    }

    fn changed_by_others(&mut self, until: i64, max_bytes: usize) -> Result<Loaded, StoreError> {
        self.store.changed_by_others(until, max_bytes)
    }

    fn clock(&mut self) -> Option<ClockReading> {
        self.store.clock()
    }

    fn release(&mut self) -> Result<(), StoreError> {
        self.store.release()
    }
}

/// The handlers of a turn are called one after the other, and one of them takes as long as the
/// lease. The others must not be called until it is renewed.
#[test]
fn a_handler_that_outlasts_the_lease_is_followed_by_no_other() {
    const TIMERS: usize = 50;
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap();
    let (sender, runs) = channel();
    let fails = Arc::new(AtomicBool::new(false));
    let (time, stops_renewals) = (clock.clone(), fails.clone());
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<usize>| {
        let number = *due.payload();
        if number == 0 {
            stops_renewals.store(true, Ordering::Relaxed);
            time.advance(Duration::from_secs(10));
        }
        sender.send(number).unwrap();
        due.done();
    });
    let store = Renewing { store: MemoryDatabase::new().open().unwrap(), fails: fails.clone() };
    let timers = DurableTimers::builder(store).topic(topic).start(by_hand.group()).unwrap();
    let starts = (0..TIMERS).map(|number| timers.at("topic", ms(500), &number));
    assert!(by_hand.run_until(timers.start_many(starts)).unwrap().iter().all(Result::is_ok));
    // They are loaded and the lease is valid, so all are claimed in one turn, and fire in one.
    for _ in 0..10 {
        settle(&mut by_hand, &timers);
    }
    clock.advance(ms(600));
    for _ in 0..10 {
        settle(&mut by_hand, &timers);
    }
    assert_eq!(runs.try_iter().collect::<Vec<_>>(), [0]);
    assert_eq!(timers.metrics().fired, 1);
    fails.store(false, Ordering::Relaxed);
    let mut others = Vec::new();
    wait_until("the others fire", || {
        clock.advance(ms(100));
        settle(&mut by_hand, &timers);
        others.extend(runs.try_iter());
        others.len() == TIMERS - 1
    });
    let metrics = timers.metrics();
    assert_eq!((metrics.stale, metrics.fired, metrics.lateness.count()), (0, TIMERS as u64, TIMERS as u64));
    by_hand.run_until(timers.close()).unwrap();
}
