//! How handlers answer.

use crate::{
    support::{
        loops::{end, one_loop},
        wait::{HOUR, done, ms, receive, wait_until},
    },
    timers::File,
};
use netwheel::{
    EventLoopGroup,
    durable::{
        Delivery, Due, DurableTimers, Late, Retry, SqliteStore, TimerFilter, TimerInfo, TimerState, Topic,
    },
};
use serde::{Deserialize, Deserializer};
use std::{sync::mpsc::channel, time::SystemTime};

/// Runs one timer whose handler is `handler`, until it is a dead letter.
fn dead_letter(file: &File, payload: &str, handler: impl FnMut(Due<u32>) + Send + 'static) -> TimerInfo {
    let group = one_loop();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), handler);
    let timers = file.open().topic(topic).start(&group).unwrap();
    done(timers.at("topic", ms(0), &serde_json::from_str::<serde_json::Value>(payload).unwrap()).start())
        .unwrap();
    let mut dead = Vec::new();
    wait_until("the run has failed", || {
        dead = done(timers.list(TimerFilter::new().state(TimerState::Dead))).unwrap();
        !dead.is_empty()
    });
    assert_eq!(timers.metrics().dead_lettered, 1);
    done(timers.close()).unwrap();
    end(&group);
    dead.remove(0)
}

/// P-07.
#[test]
fn a_handler_that_fails_panics_or_drops_its_timer_has_failed() {
    let failed = dead_letter(&File::new(), "1", |due| due.fail("no paper"));
    assert_eq!(failed.error.as_deref(), Some("no paper"));
    let panicked = dead_letter(&File::new(), "1", |_due| panic!("out of ink"));
    assert_eq!(panicked.error.as_deref(), Some("the handler panicked: out of ink"));
    let dropped = dead_letter(&File::new(), "1", drop);
    assert_eq!(dropped.error.as_deref(), Some("the handler did not answer"));
    let caught = dead_letter(&File::new(), "1", |due| {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _due = due;
            panic!("on purpose");
        }));
        assert!(result.is_err());
    });
    assert_eq!(caught.error.as_deref(), Some("the handler did not answer"));
}

/// P-07.
#[test]
fn a_timer_whose_thread_panics_has_failed() {
    let elsewhere = dead_letter(&File::new(), "1", |due| {
        let thread = std::thread::spawn(move || {
            let _due = due;
            panic!("on purpose");
        });
        assert!(thread.join().is_err(), "the handler still runs");
    });
    assert_eq!(elsewhere.error.as_deref(), Some("the thread that should answer panicked"));
    let later = one_loop();
    let next = later.next().clone();
    let on_another_loop = dead_letter(&File::new(), "1", move |due| {
        next.execute(move || {
            let _due = due;
            panic!("on purpose");
        })
        .unwrap();
    });
    assert_eq!(on_another_loop.error.as_deref(), Some("the thread that should answer panicked"));
    end(&later);
}

/// P-07.
#[test]
fn a_payload_of_another_type_becomes_a_dead_letter() {
    let info = dead_letter(&File::new(), "\"text\"", |due| due.done());
    let error = info.error.unwrap();
    assert!(error.starts_with("the payload is not understood: "), "{error}");
    assert_eq!(info.payload, "\"text\"");
}

struct Picky(String);

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        assert_ne!(text, "bad", "a payload that the program does not expect");
        Ok(Picky(text))
    }
}

/// The conversion is code of the program too.
#[test]
fn a_payload_whose_conversion_panics_stops_no_other_timer() {
    let (file, group) = (File::new(), one_loop());
    let (sender, runs) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<Picky>| {
        sender.send(due.payload().0.clone()).unwrap();
        due.done();
    });
    let timers = file.open().topic(topic).start(&group).unwrap();
    let at = SystemTime::now() + ms(50);
    for payload in ["bad", "good", "better"] {
        done(timers.at("topic", at, payload).start()).unwrap();
    }
    assert_eq!([receive(&runs), receive(&runs)], ["good", "better"]);
    done(timers.close()).unwrap();
    assert_eq!(timers.metrics().dead_lettered, 1);
    end(&group);
}

#[test]
fn a_timer_may_be_answered_later_on_another_thread() {
    let file = File::new();
    let group = one_loop();
    let (sender, dues) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        sender.send(due).unwrap();
    });
    let timers = file.open().topic(topic).start(&group).unwrap();
    let id = done(timers.at("topic", ms(0), "x").key("k").start()).unwrap();
    let due = receive(&dues);
    assert_eq!((due.id(), due.key(), due.attempt(), due.missed()), (id, Some("k"), 1, 0));
    let closed = timers.close();
    assert!(!closed.is_done(), "close waits for the run");
    due.done();
    done(closed).unwrap();
    end(&group);
}

/// Counts the rows of a table that the handler writes in the transaction.
fn rows(file: &File) -> i64 {
    let connection = netwheel::durable::rusqlite::Connection::open(file.path()).unwrap();
    connection.query_row("SELECT count(*) FROM sent", [], |row| row.get(0)).unwrap()
}

fn writing(file: &File, group: &EventLoopGroup) -> (DurableTimers, std::sync::mpsc::Receiver<u32>) {
    let (sender, runs) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::backoff(3).initial(ms(1)), move |due: Due<u32>| {
        let (attempt, payload) = (due.attempt(), *due.payload());
        let sender = sender.clone();
        due.done_with(move |transaction| {
            let connection = transaction.sqlite()?;
            let write = || {
                connection.execute("CREATE TABLE IF NOT EXISTS sent (x)", [])?;
                connection.execute("INSERT INTO sent VALUES (?1)", [payload])
            };
            write().map_err(netwheel::Error::other)?;
            match attempt {
                1 => return Err("the effect fails after its writes".into()),
                2 => panic!("the effect panics after its writes"),
                _ => {}
            }
            sender.send(payload).unwrap();
            Ok(())
        });
    });
    (file.open().topic(topic).start(group).unwrap(), runs)
}

/// P-06.
#[test]
fn the_writes_of_a_handler_are_stored_once_with_the_end() {
    let file = File::new();
    let group = one_loop();
    let (timers, runs) = writing(&file, &group);
    for payload in 0..10 {
        done(timers.at("topic", ms(0), &payload).start()).unwrap();
    }
    let mut seen: Vec<u32> = (0..10).map(|_| receive(&runs)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    done(timers.close()).unwrap();
    assert_eq!(rows(&file), 10, "the failed attempts have left nothing");
    assert_eq!(timers.metrics().retried, 20);
    end(&group);
}

#[test]
fn a_program_reads_and_writes_its_own_tables_while_the_timers_are_open() {
    let file = File::new();
    let group = one_loop();
    let (timers, runs) = writing(&file, &group);
    done(timers.at("topic", ms(0), &7).start()).unwrap();
    receive(&runs);
    let count = || {
        done(timers.transaction(|transaction| {
            let connection = transaction.sqlite()?;
            let count = connection.query_row("SELECT count(*) FROM sent", [], |row| row.get::<_, i64>(0));
            count.map_err(netwheel::Error::other)
        }))
    };
    assert_eq!(count().unwrap(), 1);
    for panics in [false, true] {
        let failed = done(timers.transaction(move |transaction| -> netwheel::Result {
            transaction.sqlite()?.execute_batch("DELETE FROM sent").map_err(netwheel::Error::other)?;
            assert!(!panics, "on purpose");
            Err("rolled back".into())
        }));
        let error = failed.unwrap_err().to_string();
        assert!(error.contains(if panics { "on purpose" } else { "rolled back" }), "{error}");
    }
    assert_eq!(count().unwrap(), 1);
    done(timers.close()).unwrap();
    assert!(count().is_err());
    assert!(!timers.metrics().is_stopped);
    end(&group);
}

/// P-05.
#[test]
fn at_most_once_ignores_failures() {
    let file = File::new();
    let group = one_loop();
    let (sender, runs) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        sender.send(due.payload().clone()).unwrap();
        due.fail("too late");
    })
    .delivery(Delivery::AtMostOnce);
    let timers = file.open().topic(topic).start(&group).unwrap();
    done(timers.at("topic", ms(0), "x").start()).unwrap();
    assert_eq!(receive(&runs), "x");
    done(timers.close()).unwrap();
    let metrics = timers.metrics();
    assert_eq!((metrics.failed_at_most_once, metrics.dead_lettered, metrics.pending), (1, 0, 0));
    end(&group);
}

#[test]
fn a_handler_may_use_the_timers() {
    let file = File::new();
    let group = one_loop();
    let (sender, runs) = channel();
    let handle: std::sync::Arc<std::sync::OnceLock<DurableTimers>> = std::sync::Arc::default();
    let weak = std::sync::Arc::downgrade(&handle);
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<u32>| {
        let left = *due.payload();
        sender.send(left).unwrap();
        if let Some(timers) = weak.upgrade().filter(|_| left > 0) {
            let timers = timers.get().unwrap();
            timers.at("topic", ms(0), &(left - 1)).start().detach();
            timers.cancel(due.id()).detach();
        }
        due.done();
    });
    handle.set(file.open().topic(topic).start(&group).unwrap()).unwrap();
    let timers = handle.get().unwrap();
    done(timers.at("topic", ms(0), &5).start()).unwrap();
    assert_eq!((0..6).map(|_| receive(&runs)).collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0]);
    done(timers.close()).unwrap();
    assert_eq!(timers.metrics().pending, 0);
    end(&group);
}

#[test]
fn dropping_the_last_handle_closes_the_store() {
    let file = File::new();
    let (group, timers, _runs) = crate::timers::started(&file);
    let other = timers.clone();
    done(timers.at("topic", HOUR, "x").start()).unwrap();
    drop(timers);
    done(other.at("topic", HOUR, "y").start()).unwrap();
    drop(other);
    // The store's thread unlocks the file.
    wait_until("the file is unlocked", || SqliteStore::open(file.path()).is_ok());
    end(&group);
}
