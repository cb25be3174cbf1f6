//! What others do to the files of an open store.

use crate::{
    new_timers::with,
    support::{
        loops::{end, one_loop},
        process::{play, plays},
        wait::{HOUR, done, ms, receive, wait_until},
    },
    timers::{File, sending, started},
};
use netwheel::{
    Error,
    durable::{
        DurableTimers, SqliteStore, StoreError, TimerId, TimerStore,
        rusqlite::Connection,
        store::{Change, DeadLetters, NewTimer},
    },
};
use std::{fs, path::Path, process::Command};

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

/// Another process, which reads the database and closes it.
#[test]
fn reader() {
    if plays("reader") {
        let connection = Connection::open(std::env::var("NETWHEEL_READER_FILE").unwrap()).unwrap();
        let count = connection.query_row("SELECT count(*) FROM timers", [], |row| row.get::<_, i64>(0));
        println!("@{}", count.unwrap());
    }
}

fn read_in_another_process(file: &Path) -> u64 {
    let mut command = play("reader");
    command.insert(1, format!("NETWHEEL_READER_FILE={}", file.display()));
    let output = Command::new(&command[0]).args(&command[1..]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.split_once('@')?.1.parse().ok()).unwrap()
}

/// Copying a file drops SQLite's locks. Another process that closes the database would take itself
/// for the only one, and remove the log.
#[cfg(target_os = "linux")]
#[test]
fn a_copy_and_a_reader_in_another_process_lose_nothing() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    for number in 1..=3 {
        done(timers.at("topic", HOUR, "later").start()).unwrap();
        for suffix in ["", "-wal", "-shm"] {
            let path = file.path().with_extension(format!("db{suffix}"));
            fs::copy(&path, path.with_extension("copy")).unwrap();
        }
        assert_eq!(read_in_another_process(&file.path()), number);
    }
    done(timers.at("topic", ms(0), "now").start()).unwrap();
    assert_eq!(receive(&runs), "now");
    done(timers.close()).unwrap();
    assert_eq!(read_in_another_process(&file.path()), 3);
    assert!(!file.path().with_extension("db-wal").exists());
    end(&group);
}

/// A handle that was closed would drop the locks of other connections of the process.
#[cfg(target_os = "linux")]
#[test]
fn a_closed_store_leaves_the_locks_of_other_connections() {
    let file = File::new();
    let connection = {
        let _store = SqliteStore::open(file.path()).unwrap();
        Connection::open(file.path()).unwrap()
    };
    connection.execute_batch("CREATE TABLE mine (x)").unwrap();
    assert_eq!(read_in_another_process(&file.path()), 0);
    assert!(file.path().with_extension("db-wal").exists(), "the reader took itself for the only one");
    drop(connection);
    assert!(!file.path().with_extension("db-wal").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_closed_store_leaves_no_handles_open() {
    let file = File::new();
    drop(SqliteStore::open(file.path()).unwrap());
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let open: Vec<_> = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect();
    assert!(!open.iter().any(|path| path.starts_with(file.path().parent().unwrap())), "{open:?}");
}

fn start(bytes: usize) -> Change {
    let payload = vec![b'1'; bytes];
    Change::Start(NewTimer::new(0, 1, payload))
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

/// Opens a store with this number of dead letters.
fn with_dead_letters(file: &File, letters: usize) -> SqliteStore {
    let mut store = SqliteStore::open(file.path()).unwrap().max_log_bytes(1 << 20);
    store.attach(&["topic".to_owned()]).unwrap();
    let mut starts: Vec<Change> = (0..letters).map(|_| start(2500)).collect();
    store.commit(&mut starts, 0).unwrap();
    let sql = "UPDATE timers SET state = 1; UPDATE topics SET dead = pending, pending = 0";
    Connection::open(file.path()).unwrap().execute_batch(sql).unwrap();
    store
}

fn log_of(file: &File) -> u64 {
    fs::metadata(file.path().with_extension("db-wal")).unwrap().len()
}

fn some_letters() -> DeadLetters {
    with(DeadLetters::new("topic"), |letters| letters.limit = 500)
}

#[test]
fn the_log_is_copied_while_dead_letters_are_removed() {
    let file = File::new();
    let mut store = with_dead_letters(&file, 10_000);
    let mut longest = 0;
    while store.remove_dead(&some_letters(), 1).unwrap() > 0 {
        longest = longest.max(store.maintain().unwrap().log_bytes);
        assert!(log_of(&file) < 70_000_000, "{longest}");
    }
    assert!((1_000_000..8_000_000).contains(&longest), "{longest}");
}

#[test]
fn dead_letters_stay_when_the_log_has_reached_its_limit() {
    let file = File::new();
    let mut store = with_dead_letters(&file, 10_000);
    wait_until("the log is short", || store.commit(&mut [start(1)], 0).is_ok());
    let reader = Connection::open(file.path()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(reader.query_row("SELECT count(*) FROM topics", [], |row| row.get::<_, i64>(0)), Ok(1));
    let busy = loop {
        match store.remove_dead(&some_letters(), 1) {
            Ok(removed) => assert!(removed > 0, "nothing is refused"),
            Err(error) => break error.to_string(),
        }
        store.maintain().unwrap();
    };
    assert!(busy.contains("busy: its log has"), "{busy}");
    assert!(store.set_paused("topic", true).unwrap(), "a pause needs no more than twice the limit");
    reader.execute_batch("COMMIT").unwrap();
    wait_until("dead letters are removed", || store.remove_dead(&some_letters(), 1).is_ok());
}

#[test]
fn a_reader_of_the_program_makes_the_log_grow_to_its_limit_and_not_beyond() {
    let file = File::new();
    let group = crate::support::loops::one_loop();
    let (topic, runs) = sending("topic");
    let store = SqliteStore::open(file.path()).unwrap().max_log_bytes(1 << 20);
    let timers = DurableTimers::builder(store).topic(topic).start(&group).unwrap();
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
    wait_until("the log is short again", || timers.metrics().log_bytes < 100_000);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn ends_are_refused_when_the_log_has_twice_its_limit() {
    let file = File::new();
    let mut store = SqliteStore::open(file.path()).unwrap().max_log_bytes(1 << 20);
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
    let store = SqliteStore::in_memory().unwrap().max_log_bytes(1000);
    let refused = DurableTimers::builder(store).start(&one_loop()).unwrap_err();
    assert!(matches!(refused, Error::Setting(_)), "{refused:?}");
    let error = refused.to_string();
    assert!(error.contains("max_log_bytes") && error.contains("at least 1 MiB"), "{error}");
}
