//! Stores that fail.

use crate::{
    support::{
        loops::{end, one_loop},
        wait::{HOUR, done, ms, receive, wait_until},
    },
    timers::{File, sending},
};
use netwheel::{
    Error, EventLoopGroup,
    durable::{
        Due, DurableTimers, Late, Retry, SqliteStore, StoreError, TimerFilter, TimerInfo, TimerStore, Topic,
        TopicCounts,
        store::{Change, LoadRange, Loaded, Outcome},
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// What goes wrong in a transaction.
pub(crate) enum Fault {
    /// Nothing is committed.
    Error(StoreError),
    Panic,
}

/// Says for each transaction whether it fails, by its number and its changes.
type Plan = dyn FnMut(usize, &[Change]) -> Option<Fault> + Send;

/// A store in memory whose transactions fail as planned.
pub(crate) struct FaultyStore {
    store: SqliteStore,
    plan: Box<Plan>,
    commits: Arc<AtomicUsize>,
}

impl FaultyStore {
    pub(crate) fn new(plan: impl FnMut(usize, &[Change]) -> Option<Fault> + Send + 'static) -> Self {
        let store = SqliteStore::in_memory().unwrap();
        FaultyStore { store, plan: Box::new(plan), commits: Arc::default() }
    }
}

impl TimerStore for FaultyStore {
    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        self.store.attach(topics)
    }

    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed);
        match (self.plan)(number, changes) {
            Some(Fault::Error(error)) => Err(error),
            Some(Fault::Panic) => panic!("injected"),
            None => self.store.commit(changes, now),
        }
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

fn start_on(store: FaultyStore) -> (EventLoopGroup, DurableTimers, crate::timers::Runs) {
    let group = one_loop();
    let (topic, runs) = sending("topic");
    let timers = DurableTimers::builder(store).topic(topic).max_commit_delay(ms(0)).start(&group).unwrap();
    (group, timers, runs)
}

#[test]
fn a_start_fails_on_a_full_disk_and_the_next_one_succeeds() {
    let store = FaultyStore::new(|number, _| (number == 0).then_some(Fault::Error(StoreError::DiskFull)));
    let (group, timers, runs) = start_on(store);
    let refused = done(timers.at("topic", ms(0), "refused").start()).unwrap_err();
    assert!(refused.to_string().contains("full"), "{refused}");
    done(timers.at("topic", ms(0), "stored").start()).unwrap();
    assert_eq!(receive(&runs), "stored");
    done(timers.close()).unwrap();
    assert_eq!(timers.metrics().commit_failures, 1);
    end(&group);
}

#[test]
fn the_end_of_a_run_is_repeated_while_the_store_is_busy() {
    let busy = || Some(Fault::Error(StoreError::Busy("injected".into())));
    let store = FaultyStore::new(move |number, _| if (1..4).contains(&number) { busy() } else { None });
    let (group, timers, runs) = start_on(store);
    done(timers.at("topic", ms(0), "x").start()).unwrap();
    assert_eq!(receive(&runs), "x");
    done(timers.close()).unwrap();
    let metrics = timers.metrics();
    assert_eq!((metrics.commit_failures, metrics.fired, metrics.ended, metrics.pending), (3, 1, 1, 0));
    end(&group);
}

#[test]
fn queries_do_not_keep_an_end_from_being_repeated() {
    let busy = || Some(Fault::Error(StoreError::Busy("injected".into())));
    let store = FaultyStore::new(move |number, _| if number == 1 { busy() } else { None });
    let (group, timers, runs) = start_on(store);
    done(timers.at("topic", ms(0), "x").start()).unwrap();
    assert_eq!(receive(&runs), "x");
    wait_until("the run ends", || {
        done(timers.counts()).unwrap();
        timers.metrics().ended == 1
    });
    end(&group);
}

/// Each failure has a pause, which is that of the starts. The end waits for its own one only.
#[test]
fn starts_that_fail_do_not_keep_an_end_from_being_repeated() {
    let mut has_failed = false;
    let store = FaultyStore::new(move |number, changes| {
        let ends = changes.iter().any(|change| matches!(change, Change::End { .. }));
        let starts = changes.iter().any(|change| matches!(change, Change::Start(_)));
        let fails = ends && !has_failed || number > 0 && starts;
        has_failed |= ends;
        fails.then(|| Fault::Error(StoreError::Busy("injected".into())))
    });
    let (group, timers, runs) = start_on(store);
    done(timers.at("topic", ms(0), "x").start()).unwrap();
    assert_eq!(receive(&runs), "x");
    wait_until("the run ends", || {
        done(timers.at("topic", HOUR, "refused").start()).unwrap_err();
        timers.metrics().ended == 1
    });
    end(&group);
}

/// Nothing is written after an error that leaves the state on disk unknown.
#[test]
fn a_store_that_failed_stops_for_good() {
    stops_for_good(|| Fault::Error(StoreError::Failed("injected".into())));
}

#[test]
fn a_store_that_panicked_stops_for_good() {
    stops_for_good(|| Fault::Panic);
}

fn stops_for_good(fault: impl Fn() -> Fault + Send + 'static) {
    let store = FaultyStore::new(move |number, _| (number == 1).then(&fault));
    let commits = store.commits.clone();
    let (group, timers, runs) = start_on(store);
    let id = done(timers.at("topic", HOUR, "stored").start()).unwrap();
    let error = done(timers.at("topic", ms(0), "fails").start()).unwrap_err();
    assert!(error.to_string().contains("injected"), "{error}");
    for _ in 0..3 {
        assert!(
            done(timers.at("topic", ms(0), "refused").start()).unwrap_err().to_string().contains("injected")
        );
        assert!(done(timers.run_now(id)).unwrap_err().to_string().contains("injected"));
        assert!(done(timers.list(TimerFilter::new())).unwrap_err().to_string().contains("injected"));
    }
    assert!(done(timers.close()).unwrap_err().to_string().contains("injected"));
    assert!(runs.try_recv().is_err());
    assert_eq!(commits.load(Ordering::Relaxed), 2);
    assert!(timers.metrics().is_stopped);
    end(&group);
}

/// SQLite rolls back the whole transaction, and not only the statement of the effect.
#[test]
fn a_full_disk_in_an_effect_delays_the_end_until_there_is_space() {
    let (file, group) = (File::new(), one_loop());
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), |due: Due<u32>| {
        due.done_with(|tx| {
            let sql = "INSERT INTO effects VALUES (randomblob(1000000))";
            tx.sqlite()?.execute(sql, []).map(drop).map_err(Error::other)
        });
    });
    let timers = file.open().topic(topic).start(&group).unwrap();
    let execute = |sql: &'static str| {
        done(timers.transaction(move |tx| tx.sqlite()?.execute_batch(sql).map_err(Error::other))).unwrap();
    };
    execute("CREATE TABLE effects (data BLOB); PRAGMA max_page_count = 60");
    done(timers.at("topic", ms(1), &1).start()).unwrap();
    wait_until("the end has failed twice", || timers.metrics().commit_failures >= 2);
    assert!(!timers.metrics().is_stopped);
    execute("PRAGMA max_page_count = 10000");
    wait_until("the run has ended", || timers.metrics().ended == 1);
    let rows = timers.transaction(|tx| {
        let count = "SELECT count(*) FROM effects";
        tx.sqlite()?.query_row(count, [], |row| row.get::<_, i64>(0)).map_err(Error::other)
    });
    assert_eq!(done(rows).unwrap(), 1);
    done(timers.close()).unwrap();
    end(&group);
}
