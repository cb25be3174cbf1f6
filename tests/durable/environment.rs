//! What others do to the files of an open store.

use crate::{
    support::{
        loops::end,
        wait::{HOUR, done, ms, receive, wait_until},
    },
    timers::{File, sending, started},
};
use netwheel::durable::{
    DurableTimers, SqliteStore, StoreError, TimerId, TimerStore,
    rusqlite::Connection,
    store::{Change, NewTimer},
};
use std::{fs, path::Path};

/// Starts fail from the moment at which `harm` was done to a file of the store.
#[track_caller]
fn stops_after(suffix: &str, harm: impl Fn(&Path)) {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    done(timers.at("topic", HOUR, "stored").start()).unwrap();
    harm(&file.path().with_extension(format!("db{suffix}")));
    let error = done(timers.at("topic", ms(0), "lost").start()).unwrap_err().to_string();
    assert!(error.contains("was moved, deleted or replaced while the store was open"), "{error}");
    assert!(timers.metrics().is_stopped);
    assert!(done(timers.at("topic", ms(0), "refused").start()).is_err());
    assert!(done(timers.close()).is_err());
    assert!(runs.try_recv().is_err(), "the lost timer fired");
    end(&group);
}

#[cfg(unix)]
#[test]
fn a_store_stops_when_one_of_its_files_is_deleted() {
    for suffix in ["", "-wal", "-lock"] {
        stops_after(suffix, |path| fs::remove_file(path).unwrap());
    }
}

#[cfg(unix)]
#[test]
fn a_store_stops_when_one_of_its_files_is_moved_or_replaced() {
    for suffix in ["", "-wal", "-lock"] {
        stops_after(suffix, |path| fs::rename(path, path.with_extension("away")).unwrap());
        stops_after(suffix, |path| {
            let copy = path.with_extension("copy");
            fs::copy(path, &copy).unwrap();
            fs::rename(copy, path).unwrap();
        });
    }
}

/// Another process that closes the file takes itself for the last one, because copying the file
/// has dropped SQLite's locks. It removes the log.
#[cfg(unix)]
#[test]
fn a_log_that_another_process_has_removed_stops_the_store() {
    stops_after("", |path| {
        fs::copy(path, path.with_extension("copy")).unwrap();
        let log = path.with_extension("db-wal");
        let script = "SELECT count(*) FROM timers";
        let shell = std::process::Command::new("sqlite3").arg(path).arg(script).output();
        if !shell.is_ok_and(|output| output.status.success()) {
            fs::remove_file(&log).unwrap();
        }
        assert!(!log.exists(), "the log is still there");
    });
}

fn start(bytes: usize) -> Change {
    let payload = vec![b'1'; bytes];
    Change::Start(NewTimer {
        topic: 0,
        due: 1,
        idempotency_key: None,
        schedule: None,
        payload,
        replaces_payload: false,
    })
}

#[test]
fn the_log_is_copied_when_it_has_a_thousand_pages() {
    let file = File::new();
    let mut store = SqliteStore::open(file.path()).unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    let mut longest = 0;
    for _ in 0..1000 {
        store.commit(&mut [start(60_000)], 0).unwrap();
        longest = longest.max(store.maintain().unwrap().log_bytes);
    }
    assert!((4_000_000..6_000_000).contains(&longest), "{longest}");
    assert!(fs::metadata(file.path()).unwrap().len() > 50_000_000);
}

#[test]
fn a_reader_of_the_program_makes_the_log_grow_to_its_limit_and_not_beyond() {
    let file = File::new();
    let group = crate::support::loops::one_loop();
    let (topic, runs) = sending("topic");
    let store = SqliteStore::open(file.path()).unwrap().log_limit(1 << 20).unwrap();
    let timers = DurableTimers::on(store).topic(topic).start(&group).unwrap();
    let reader = Connection::open(file.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM timers").unwrap();
    let read = || reader.query_row("SELECT count(*) FROM timers", [], |row| row.get::<_, i64>(0));
    assert_eq!(read(), Ok(0));

    done(timers.at("topic", ms(300), "before").start()).unwrap();
    let payload = "x".repeat(60_000);
    let refused = loop {
        if let Err(error) = done(timers.at("topic", HOUR, &payload).start()) {
            break error.to_string();
        }
    };
    assert!(refused.contains("busy: its log has 1") && refused.contains("another connection"), "{refused}");
    let bytes = timers.metrics().log_bytes;
    assert!((1 << 20..1 << 21).contains(&bytes), "{bytes}");
    // Runs end nevertheless.
    assert_eq!(receive(&runs), "before");
    wait_until("the run has ended", || timers.metrics().ended == 1);

    assert_eq!(read(), Ok(0));
    reader.execute_batch("COMMIT").unwrap();
    wait_until("a start is stored", || done(timers.at("topic", HOUR, "after").start()).is_ok());
    assert!(timers.metrics().log_bytes < 100_000, "{}", timers.metrics().log_bytes);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn ends_are_refused_when_the_log_has_twice_its_limit() {
    let file = File::new();
    let mut store = SqliteStore::open(file.path()).unwrap().log_limit(1 << 20).unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    let reader = Connection::open(file.path()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(reader.query_row("SELECT count(*) FROM timers", [], |row| row.get::<_, i64>(0)), Ok(0));
    let mut bytes = 0;
    let mut commit = |change| {
        store.commit(&mut [change], 0)?;
        bytes = store.maintain()?.log_bytes;
        Ok::<_, StoreError>(())
    };
    while commit(start(60_000)).is_ok() {}
    let id = TimerId::new(1);
    let mut moves = 0;
    while commit(Change::Move { id, due: moves }).is_ok() {
        moves += 1;
    }
    assert!(moves > 50, "{moves}");
    reader.execute_batch("COMMIT").unwrap();
    wait_until("a change is stored", || commit(Change::Move { id, due: 1 }).is_ok());
    assert!(bytes < 100_000, "{bytes}");
}

#[test]
fn a_limit_below_a_mebibyte_is_refused() {
    let error = SqliteStore::in_memory().unwrap().log_limit(1000).unwrap_err().to_string();
    assert!(error.contains("log_limit") && error.contains("at least 1 MiB"), "{error}");
}
