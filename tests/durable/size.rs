//! Many timers, and the limits that keep them from filling the memory or holding up the loop.

use crate::{
    support::{
        loops::{end, one_loop, settle},
        wait::{HOUR, SECOND, done, ms, receive},
    },
    timers::{File, sending},
};
use netwheel::{
    Error, EventLoopGroup,
    durable::{
        Due, DurableTimers, DurableTimersBuilder, Late, Retry, SqliteStore, TimerFilter, TimerId, TimerStore,
        Topic,
        store::{Change, NewTimer},
    },
    testing::ManualClock,
    time::Clock,
};
use std::{
    sync::{
        Arc, Barrier, Mutex,
        mpsc::{Receiver, channel},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Fewer in builds that are not optimised.
const MANY: usize = if cfg!(debug_assertions) { 20_000 } else { 100_000 };

fn millis(time: SystemTime) -> i64 {
    i64::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Adds timers to a store. Their payload is their number.
fn fill(store: &mut SqliteStore, topic: &str, due: impl IntoIterator<Item = i64>) {
    store.attach(&[topic.to_owned()]).unwrap();
    let start = |(number, due): (usize, i64)| {
        let payload = format!("\"{number}\"").into_bytes();
        Change::Start(NewTimer::new(0, due, payload))
    };
    let mut changes: Vec<Change> = due.into_iter().enumerate().map(start).collect();
    for batch in changes.chunks_mut(1000) {
        store.commit(batch, 0).unwrap();
    }
}

/// Timers of a store on a manual clock. The first one is due in half a minute, the last one a
/// second later.
struct Full {
    clock: ManualClock,
    group: EventLoopGroup,
    builder: DurableTimersBuilder,
}

impl Full {
    fn new(timers: usize) -> Self {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
        let first = millis(clock.wall_time() + 30 * SECOND);
        let mut store = SqliteStore::in_memory().unwrap();
        // In another order than that of the ids.
        fill(&mut store, "topic", (0..timers).map(|n| first + i64::try_from(n * 7919 % 1000).unwrap()));
        Full { clock, group, builder: DurableTimers::builder(store) }
    }
}

type Fires = Receiver<(SystemTime, TimerId)>;

/// A topic that is done at once and sends what identifies the place of each timer in the order.
fn ordered() -> (Topic, Fires) {
    let (sender, fires) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        sender.send((due.scheduled(), due.id())).unwrap();
        due.done();
    });
    (topic, fires)
}

#[track_caller]
fn assert_all_in_order(fires: &Fires, count: usize) {
    let mut last = receive(fires);
    for _ in 1..count {
        let next = receive(fires);
        assert!(last < next, "{next:?} fired after {last:?}");
        last = next;
    }
}

#[test]
fn many_timers_of_one_second_fire_in_order_and_share_the_loop() {
    const PER_TURN: usize = 64;
    let Full { clock, group, builder } = Full::new(MANY);
    let event_loop = group.next().clone();
    let (sender, fires) = channel();
    // The number of fires so far, and how many there were when tasks of this loop ran.
    let counts = Arc::new(Mutex::new((0, Vec::new())));
    let count = counts.clone();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        let fired = {
            let mut count = count.lock().unwrap();
            count.0 += 1;
            count.0
        };
        if fired % 1000 == 0 {
            let count = count.clone();
            let note = move || {
                let mut count = count.lock().unwrap();
                let waited = count.0 - fired;
                count.1.push(waited);
            };
            event_loop.execute(note).unwrap();
        }
        sender.send((due.scheduled(), due.id())).unwrap();
        due.done();
    });
    let timers = builder.topic(topic).fires_per_turn(PER_TURN).start(&group).unwrap();
    clock.advance(31 * SECOND);
    assert_all_in_order(&fires, MANY);
    settle(group.next());
    let waited = std::mem::take(&mut counts.lock().unwrap().1);
    assert_eq!(waited.len(), MANY / 1000);
    assert!(waited.iter().all(|fires| *fires <= PER_TURN), "a task waited for {waited:?} fires");
    done(timers.close()).unwrap();
    let metrics = timers.metrics();
    assert_eq!((metrics.fired, metrics.ended, metrics.pending), (MANY as u64, MANY as u64, 0));
    end(&group);
}

/// Returns the largest number of loaded timers while `timers` fire.
fn most_loaded(timers: usize, limit: impl FnOnce(DurableTimersBuilder) -> DurableTimersBuilder) -> u64 {
    let Full { clock, group, builder } = Full::new(timers);
    let (topic, fires) = ordered();
    let durable = limit(builder).topic(topic).start(&group).unwrap();
    // Starts between and behind the loaded timers.
    let soon = clock.wall_time() + 30 * SECOND;
    let starts: Vec<_> = (0..100).map(|n| durable.at("topic", soon + ms(n * 13), "new").start()).collect();
    for start in starts {
        done(start).unwrap();
    }
    // Until timers were loaded.
    let mut most = 0;
    while most == 0 {
        done(durable.counts()).unwrap();
        settle(group.next());
        most = durable.metrics().loaded;
    }
    clock.advance(32 * SECOND);
    let mut last = receive(&fires);
    for _ in 1..timers + 100 {
        let next = receive(&fires);
        assert!(last < next, "{next:?} fired after {last:?}");
        last = next;
        most = most.max(durable.metrics().loaded);
    }
    done(durable.close()).unwrap();
    assert_eq!(durable.metrics().pending, 0);
    end(&group);
    most
}

#[test]
fn a_limit_of_timers_in_memory_loses_none() {
    let most = most_loaded(5_000, |builder| builder.max_loaded(100));
    assert!((51..=100).contains(&most), "{most} were loaded");
    assert!(most_loaded(200, |builder| builder.max_loaded(1)) <= 1);
}

#[test]
fn a_limit_of_bytes_in_memory_loses_none() {
    // A row takes at least 100 bytes.
    let most = most_loaded(5_000, |builder| builder.max_loaded_bytes(20_000));
    assert!((10..=200).contains(&most), "{most} were loaded");
    assert!(most_loaded(200, |builder| builder.max_loaded_bytes(1)) <= 1);
}

#[test]
fn runs_that_do_not_end_hold_the_others_back() {
    const RUNNING: usize = 10;
    let Full { clock, group, builder } = Full::new(1_000);
    let (sender, dues) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        sender.send(due).unwrap();
    });
    let timers = builder.topic(topic).max_running(RUNNING).start(&group).unwrap();
    clock.advance(31 * SECOND);
    let mut running: Vec<Due<String>> = (0..RUNNING).map(|_| receive(&dues)).collect();
    for _ in 0..100 {
        settle(group.next());
        assert!(dues.try_recv().is_err(), "more than {RUNNING} runs");
        assert_eq!(timers.metrics().running, RUNNING as u64);
        // Each end makes room for one more.
        running.remove(0).done();
        running.push(receive(&dues));
    }
    drop(dues);
    running.into_iter().for_each(Due::done);
    end(&group);
}

/// Timers whose store is held up until the barrier is reached a second time.
fn held_up(file: &File, waiting: usize) -> (EventLoopGroup, DurableTimers, Arc<Barrier>) {
    let group = one_loop();
    let barrier = Arc::new(Barrier::new(2));
    let held = barrier.clone();
    let hold = Topic::new("hold", Late::RunOnce, Retry::never(), move |due: Due<()>| {
        let held = held.clone();
        due.done_with(move |_| {
            held.wait();
            held.wait();
            Ok(())
        });
    });
    let (topic, _runs) = sending("topic");
    let timers = file.open().topic(hold).topic(topic).max_waiting(waiting).start(&group).unwrap();
    done(timers.at("hold", ms(0), &()).start()).unwrap();
    barrier.wait();
    (group, timers, barrier)
}

#[test]
fn starts_beyond_the_limit_fail_and_the_others_are_stored() {
    const WAITING: usize = 50;
    let file = File::new();
    let (group, timers, barrier) = held_up(&file, WAITING);
    let accepted: Vec<_> = (0..WAITING).map(|_| timers.at("topic", HOUR, "accepted").start()).collect();
    for _ in 0..10 {
        let refused = done(timers.at("topic", HOUR, "refused").start());
        assert!(matches!(refused, Err(Error::Full { limit: WAITING, .. })), "{refused:?}");
    }
    assert!(matches!(done(timers.counts()), Err(Error::Full { .. })));
    barrier.wait();
    let mut ids: Vec<TimerId> = accepted.into_iter().map(|start| done(start).unwrap()).collect();
    ids.dedup();
    assert_eq!(ids.len(), WAITING);
    let stored = done(timers.list(TimerFilter::new())).unwrap();
    assert_eq!(stored.iter().map(|info| info.id).collect::<Vec<_>>(), ids);
    assert!(stored.iter().all(|info| info.payload == "\"accepted\""));
    end(&group);
}

#[test]
fn concurrent_starts_share_a_transaction() {
    const STARTS: usize = 500;
    let file = File::new();
    let (group, timers, barrier) = held_up(&file, STARTS);
    let starts: Vec<_> = (0..STARTS).map(|_| timers.at("topic", HOUR, "x").start()).collect();
    let before = timers.metrics().commits;
    barrier.wait();
    for start in starts {
        done(start).unwrap();
    }
    let metrics = timers.metrics();
    // The transaction that was held up, and one for all starts.
    assert_eq!(metrics.commits - before, 2);
    assert_eq!(metrics.largest_batch, STARTS as u64);
    end(&group);
}

#[test]
fn a_lone_start_does_not_wait_for_company() {
    let file = File::new();
    let group = one_loop();
    let (topic, _runs) = sending("topic");
    let timers = file.open().topic(topic).max_commit_delay(SECOND).start(&group).unwrap();
    let begun = Instant::now();
    for _ in 0..30 {
        done(timers.at("topic", HOUR, "x").start()).unwrap();
    }
    // A wait for company takes a second for each start, and is a wait of a thread in real time.
    assert!(begun.elapsed() < 20 * SECOND, "30 starts took {:?}", begun.elapsed());
    assert_eq!(timers.metrics().commits, 30);
    end(&group);
}

#[test]
fn payloads_and_keys_up_to_their_limits() {
    let file = File::new();
    let group = one_loop();
    let (topic, _runs) = sending("topic");
    let timers = file.open().topic(topic).start(&group).unwrap();
    // The quotation marks count.
    let largest = "p".repeat((64 << 10) - 2);
    let key = "k".repeat(256);
    let id = done(timers.at("topic", HOUR, &largest).key(key.as_str()).start()).unwrap();
    let too_large = format!("{largest}p");
    let refused = done(timers.at("topic", HOUR, &too_large).start()).unwrap_err();
    assert!(matches!(refused, Error::Setting(_)), "{refused:?}");
    let refused = done(timers.at("topic", HOUR, "x").key(format!("{key}k")).start()).unwrap_err();
    assert!(matches!(refused, Error::Setting(_)), "{refused:?}");
    let stored = done(timers.list(TimerFilter::new())).unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].id, stored[0].key.as_deref()), (id, Some(key.as_str())));
    assert_eq!(stored[0].payload, format!("\"{largest}\""));
    end(&group);
}

#[test]
fn many_timers_of_an_unknown_topic_are_kept_and_hold_nothing_up() {
    let file = File::new();
    let long_ago = millis(SystemTime::now() - HOUR);
    let mut store = SqliteStore::open(file.path()).unwrap();
    fill(&mut store, "gone", (0..5_000).map(|_| long_ago));
    fill(&mut store, "topic", [long_ago + 1]);
    drop(store);
    let group = one_loop();
    let (topic, runs) = sending("topic");
    let timers = file.open().topic(topic).max_loaded(10).start(&group).unwrap();
    assert_eq!(timers.unknown_topics(), ["gone"]);
    assert_eq!(receive(&runs), "0");
    done(timers.close()).unwrap();
    drop(timers);

    let (topic, fires) = channel();
    let gone = Topic::new("gone", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        topic.send((due.scheduled(), due.id())).unwrap();
        due.done();
    });
    let timers = file.open().topic(gone).start(&group).unwrap();
    assert_all_in_order(&fires, 5_000);
    done(timers.close()).unwrap();
    assert_eq!(timers.metrics().pending, 0);
    end(&group);
}
