//! The handle: start, cancel, move, run, list, close.

use crate::{
    support::{
        loops::{block, end, one_loop},
        wait::{HOUR, done, ms, receive},
    },
    timers::{File, sending, started},
};
use netwheel::{
    Error,
    durable::{
        Cron, Delivery, Due, DurableTimers, Late, MemoryDisk, Retry, SqliteStore, StoreError, TimerFilter,
        TimerId, TimerInfo, TimerState, Topic, TopicCounts,
        store::{Change, LoadRange, Loaded, NewTimer, Outcome, TimerStore},
    },
    error::Resource,
    shutdown::ShutdownOptions,
};
use std::{
    collections::BTreeSet,
    sync::{Arc, Barrier, mpsc::channel},
    time::SystemTime,
};

/// P-02.
#[test]
fn timers_fire_in_order_and_are_removed() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let soon = SystemTime::now() + ms(30);
    for payload in ["a", "b", "c"] {
        done(timers.at("topic", soon, payload).start()).unwrap();
    }
    assert_eq!([receive(&runs), receive(&runs), receive(&runs)], ["a", "b", "c"]);
    done(timers.close()).unwrap();
    let metrics = timers.metrics();
    assert_eq!((metrics.started, metrics.fired, metrics.ended, metrics.pending), (3, 3, 3, 0));
    assert!(metrics.commits >= 2 && metrics.changes == 6, "{metrics:?}");
    end(&group);
}

/// P-01.
#[test]
fn a_stored_timer_fires_in_the_next_program() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let id = done(timers.at("topic", HOUR, "later").start()).unwrap();
    done(timers.close()).unwrap();
    assert!(runs.try_recv().is_err());

    let (next_group, timers, runs) = started(&file);
    assert!(done(timers.run_now(id)).unwrap());
    assert_eq!(receive(&runs), "later");
    done(timers.close()).unwrap();
    end(&group);
    end(&next_group);
}

#[test]
fn cancelled_and_moved_timers() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let cancelled = done(timers.at("topic", HOUR, "cancelled").start()).unwrap();
    let moved = done(timers.at("topic", HOUR, "moved").start()).unwrap();
    assert!(done(timers.cancel(cancelled)).unwrap());
    assert!(!done(timers.cancel(cancelled)).unwrap());
    assert!(done(timers.move_to(moved, ms(1))).unwrap());
    assert_eq!(receive(&runs), "moved");
    assert!(!done(timers.run_now(TimerId::new(99))).unwrap());
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn listings_have_pages_and_filters() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let ids: Vec<TimerId> = (0..5)
        .map(|n| done(timers.at("topic", HOUR * (n + 1), "text").key(format!("key {n}")).start()).unwrap())
        .collect();
    let all = done(timers.list(TimerFilter::new())).unwrap();
    assert_eq!(all.iter().map(|info| info.id).collect::<Vec<_>>(), ids);
    let first = &all[0];
    assert_eq!((first.topic.as_str(), first.payload.as_str()), ("topic", "\"text\""));
    assert_eq!((first.state, first.attempts), (TimerState::Pending, 0));
    assert_eq!((first.key.as_deref(), first.schedule.as_deref()), (Some("key 0"), None));
    assert!(first.due > SystemTime::now() && first.due == first.scheduled);
    let page = done(timers.list(TimerFilter::new().after(ids[1]).limit(2))).unwrap();
    assert_eq!(page.iter().map(|info| info.id).collect::<Vec<_>>(), ids[2..4]);
    assert_eq!(done(timers.list(TimerFilter::new().topic("other"))).unwrap(), []);
    assert_eq!(done(timers.list(TimerFilter::new().state(TimerState::Dead))).unwrap(), []);
    let counts = done(timers.counts()).unwrap();
    assert_eq!((counts[0].topic.as_str(), counts[0].pending, counts[0].dead), ("topic", 5, 0));
    end(&group);
}

#[test]
fn periodic_timers_and_their_schedules() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let every = done(timers.every("topic", ms(20), "tick").start()).unwrap();
    let cron = timers.cron("topic", "0 9 * * MON-FRI", "Asia/Shanghai", "digest").unwrap();
    let cron = done(cron.key("digest").start()).unwrap();
    for _ in 0..3 {
        assert_eq!(receive(&runs), "tick");
    }
    let listed = done(timers.list(TimerFilter::new())).unwrap();
    let schedules: Vec<_> = listed.iter().map(|info| (info.id, info.schedule.as_deref().unwrap())).collect();
    assert_eq!(schedules, [(every, "every 20"), (cron, "cron Asia/Shanghai 0 9 * * MON-FRI")]);
    assert!(Cron::new("0 9 * * MON-FRI", "Asia/Shanghai").is_ok());
    assert!(done(timers.cancel(every)).unwrap());
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn refused_starts_store_nothing() {
    let file = File::new();
    let group = one_loop();
    let (topic, _runs) = sending("topic");
    let timers = file.open().topic(topic).max_payload(10).start(&group).unwrap();
    let refused = [
        timers.at("unknown", HOUR, "x"),
        timers.at("topic", HOUR, "longer than ten bytes"),
        timers.at("topic", HOUR, "x").key("k".repeat(257)),
        timers.every("topic", ms(0), "x"),
    ];
    for start in refused {
        assert!(matches!(done(start.start()), Err(Error::Setting(_))));
    }
    assert!(timers.cron("topic", "61 * * * *", "UTC", "x").is_err());
    assert!(timers.cron("topic", "* * * * *", "Middle/Earth", "x").is_err());
    assert_eq!(done(timers.list(TimerFilter::new())).unwrap(), []);
    end(&group);
}

/// P-20.
#[test]
fn operations_without_an_answer_are_limited() {
    let group = one_loop();
    let held = Arc::new(Barrier::new(2));
    let (topic, _runs) = sending("topic");
    let store = BlockingStore::open(held.clone());
    let blocked = DurableTimers::builder(store).topic(topic).max_waiting(2).start(&group).unwrap();
    let first = blocked.at("topic", HOUR, "1").start();
    let second = blocked.at("topic", HOUR, "2").start();
    let third = done(blocked.at("topic", HOUR, "3").start());
    assert!(
        matches!(third, Err(Error::Full { resource: Resource::TimerOperations, limit: 2, .. })),
        "{third:?}"
    );
    held.wait();
    done(first).unwrap();
    done(second).unwrap();
    done(blocked.at("topic", HOUR, "3").start()).unwrap();
    end(&group);
}

/// A store whose first transaction waits.
struct BlockingStore {
    store: SqliteStore,
    barrier: Option<Arc<Barrier>>,
}

impl BlockingStore {
    fn open(barrier: Arc<Barrier>) -> Self {
        BlockingStore { store: SqliteStore::in_memory().unwrap(), barrier: Some(barrier) }
    }
}

impl TimerStore for BlockingStore {
    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        self.store.attach(topics)
    }

    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError> {
        if let Some(barrier) = self.barrier.take() {
            barrier.wait();
        }
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
}

#[test]
fn a_start_that_was_completed_can_be_cancelled_at_once() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    for _ in 0..50 {
        let id = done(timers.at("topic", HOUR, "never").start()).unwrap();
        assert!(done(timers.cancel(id)).unwrap());
    }
    assert!(runs.try_recv().is_err());
    end(&group);
}

/// P-24.
#[test]
fn after_close_everything_is_refused_and_the_file_is_free() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let id = done(timers.at("topic", HOUR, "x").start()).unwrap();
    done(timers.close()).unwrap();
    done(timers.close()).unwrap();
    assert!(matches!(done(timers.at("topic", HOUR, "x").start()), Err(Error::ShutDown)));
    assert!(matches!(done(timers.cancel(id)), Err(Error::ShutDown)));
    assert!(done(timers.list(TimerFilter::new())).is_err());
    drop(file.open());
    end(&group);
}

#[test]
fn settings_out_of_range_are_refused_at_the_start() {
    let group = one_loop();
    let topic = |name: &str, late, retry| Topic::new(name, late, retry, |due: Due<()>| due.done());
    let once = || topic("a", Late::RunOnce, Retry::never());
    let builder = || DurableTimers::builder(SqliteStore::in_memory().unwrap());
    let wrong = [
        builder().near(ms(999)),
        builder().near(HOUR * 2),
        builder().max_commit_delay(ms(1001)),
        builder().late_after(HOUR * 25),
        builder().max_loaded(0),
        builder().max_loaded_bytes(0),
        builder().max_running(0),
        builder().fires_per_turn(0),
        builder().max_waiting(0),
        builder().topic(topic("", Late::RunOnce, Retry::never())),
        builder().topic(topic(&"n".repeat(129), Late::RunOnce, Retry::never())),
        builder().topic(topic("a", Late::RunAll { at_most: 0 }, Retry::never())),
        builder().topic(topic("a", Late::RunAll { at_most: 1001 }, Retry::never())),
        builder().topic(topic("a", Late::RunOnce, Retry::backoff(1).initial(ms(0)))),
        builder().topic(topic("a", Late::RunOnce, Retry::backoff(1)).delivery(Delivery::AtMostOnce)),
        builder().topic(once()).topic(once()),
        (0..257).fold(builder(), |builder, n| {
            builder.topic(topic(&n.to_string(), Late::RunOnce, Retry::never()))
        }),
    ];
    for builder in wrong {
        let text = format!("{builder:?}");
        assert!(matches!(builder.start(&group), Err(Error::Setting(_))), "{text}");
    }
    assert!(builder().topic(once()).start(&group).is_ok());
    end(&group);
}

/// P-21.
#[test]
fn unknown_topics_are_reported_and_kept() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let id = done(timers.at("topic", ms(0) + HOUR, "kept").start()).unwrap();
    done(timers.close()).unwrap();

    let (other, _other_runs) = sending("other");
    let timers = file.open().topic(other).start(&group).unwrap();
    assert_eq!(timers.unknown_topics(), ["topic"]);
    assert!(done(timers.run_now(id)).unwrap(), "it is due, but has no handler");
    done(timers.close()).unwrap();

    let (timers_group, timers, runs) = started(&file);
    assert!(timers.unknown_topics().is_empty());
    assert_eq!(receive(&runs), "kept");
    end(&timers_group);
    end(&group);
}

/// A row that no program of today would write.
#[test]
fn a_store_refuses_a_topic_that_is_not_attached() {
    let mut store = SqliteStore::in_memory().unwrap();
    store.attach(&[]).unwrap();
    let timer = NewTimer::new(0, 0, Vec::new());
    let outcomes = store.commit(&mut [Change::Start(timer)], 0).unwrap();
    assert!(matches!(outcomes[0], Outcome::Refused(_)));
}

#[test]
fn timers_close_after_their_loop_whatever_was_on_its_way() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let id = done(timers.at("topic", HOUR, "kept").start()).unwrap();
    let gate = block(&group);
    // The loop is woken for this command, and does not run the task any more.
    let cancelled = timers.cancel(id);
    let ended = group.shutdown(ShutdownOptions::new().quiet_period(ms(0)));
    drop(gate);
    done(ended).unwrap();
    let _ = done(cancelled);
    done(timers.close()).unwrap();
    SqliteStore::open(file.path()).unwrap();
}

#[test]
fn a_paused_program_stores_and_moves_timers_that_the_next_program_fires() {
    let file = File::new();
    let group = one_loop();
    let (topic, runs) = sending("topic");
    let timers = file.open().topic(topic).paused().start(&group).unwrap();
    done(timers.at("topic", ms(0), "stored").start()).unwrap();
    let later = done(timers.at("topic", HOUR, "made due").start()).unwrap();
    assert!(done(timers.run_now(later)).unwrap());
    done(timers.close()).unwrap();
    assert_eq!((runs.try_recv().ok(), timers.metrics().fired), (None, 0));

    let (next_group, timers, runs) = started(&file);
    // `at` rounds up, and `run_now` does not, so the second one may be due a millisecond earlier.
    let mut fired = [receive(&runs), receive(&runs)];
    fired.sort();
    assert_eq!(fired, ["made due", "stored"]);
    done(timers.close()).unwrap();
    end(&group);
    end(&next_group);
}

/// While the loop is blocked, the memory of new timers is limited. The others are loaded.
#[test]
fn timers_that_are_started_while_the_loop_is_blocked_fire_afterwards() {
    let file = File::new();
    let group = one_loop();
    let (topic, runs) = sending("topic");
    let timers = file.open().topic(topic).max_loaded_bytes(16 * 1024).start(&group).unwrap();
    // The engine has loaded the near timers once, so it is given new ones.
    done(timers.at("topic", ms(0), "first").start()).unwrap();
    assert_eq!(receive(&runs), "first");
    let gate = block(&group);
    let due = SystemTime::now();
    let texts: BTreeSet<String> = (0..100).map(|n| format!("{n:1000}")).collect();
    let starts: Vec<_> = texts.iter().map(|text| timers.at("topic", due, text).start()).collect();
    for start in starts {
        done(start).unwrap();
    }
    drop(gate);
    let ran: BTreeSet<String> = texts.iter().map(|_| receive(&runs)).collect();
    assert_eq!(ran, texts);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn waiting_for_the_timers_on_the_thread_of_their_store_is_refused() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let inner = timers.clone();
    let waits = done(timers.transaction(move |_| {
        let id = TimerId::new(1);
        let mut errors = vec![inner.counts().wait().unwrap_err(), inner.cancel(id).wait().unwrap_err()];
        errors.push(inner.at("topic", HOUR, "x").start().wait().unwrap_err());
        errors.push(inner.transaction(|_| Ok(())).wait().unwrap_err());
        Ok(errors)
    }));
    let errors = waits.unwrap();
    assert!(errors.iter().all(|error| matches!(error, Error::WouldDeadlock)), "{errors:?}");
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn a_start_after_close_is_refused_while_a_run_is_open() {
    let file = File::new();
    let group = one_loop();
    let (sender, dues) = std::sync::mpsc::channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        sender.send(due).unwrap();
    });
    let timers = file.open().topic(topic).start(&group).unwrap();
    done(timers.at("topic", ms(0), "open").start()).unwrap();
    let open = dues.recv().unwrap();
    let closed = timers.close();
    assert!(matches!(done(timers.at("topic", ms(0), "late").start()), Err(Error::ShutDown)));
    open.done();
    done(closed).unwrap();
}

/// Several ends are committed at once, so several handlers are to be called when the first one
/// shuts the loop down. They are called before the loop ends.
#[test]
fn a_handler_may_shut_its_loop_down_while_others_are_to_be_called() {
    const TIMERS: u32 = 50;
    let group = one_loop();
    let (sender, runs) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<u32>| {
        due.event_loop().shutdown(ShutdownOptions::new().quiet_period(ms(0))).detach();
        sender.send(*due.payload()).unwrap();
        due.done();
    });
    let builder = DurableTimers::builder(MemoryDisk::new().open().unwrap());
    let builder = builder.topic(topic.delivery(Delivery::AtMostOnce)).fires_per_turn(1);
    let timers = builder.max_commit_delay(ms(1000)).start(&group).unwrap();
    let at = SystemTime::now() + ms(100);
    let numbers: Vec<u32> = (0..TIMERS).collect();
    done(timers.start_many(numbers.iter().map(|n| timers.at("topic", at, n)))).unwrap();
    done(group.terminated()).unwrap();
    let ran = runs.try_iter().count();
    assert!(ran > 1, "{ran} handlers were called");
}
