//! Backups of open stores, and their restoration.

use crate::{
    support::{
        loops::{end, one_loop},
        wait::{HOUR, done, ms, receive},
    },
    timers::{File, sending, started},
};
use netwheel::durable::{
    Due, DurableTimers, Late, Retry, SqliteStore, StoreError, Topic,
    rusqlite::Connection,
    store::{Change, NewTimer, TimerStore},
};
use std::{fs, path::PathBuf, sync::mpsc::channel, thread};

fn backup(file: &File) -> PathBuf {
    file.path().with_extension("backup")
}

/// Returns the names of the files in the directory of a store.
fn names(file: &File) -> Vec<String> {
    let entries = fs::read_dir(file.path().parent().unwrap()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_has_what_was_stored_before_it_and_opens_as_a_store() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    for number in 0..200 {
        done(timers.at("topic", HOUR, &number.to_string()).key(number.to_string()).start()).unwrap();
    }
    let later = timers.clone();
    let (stop, stopped) = channel::<()>();
    let starter = thread::spawn(move || {
        while stopped.try_recv().is_err() {
            done(later.at("topic", HOUR, "later").start()).unwrap();
        }
    });
    done(timers.backup_to(backup(&file))).unwrap();
    stop.send(()).unwrap();
    starter.join().unwrap();
    assert!(!timers.metrics().is_stopped);
    done(timers.close()).unwrap();

    // One file, without a log.
    assert_eq!(names(&file), ["timers.backup", "timers.db", "timers.db-lock"]);
    let connection = Connection::open(backup(&file)).unwrap();
    let text = |sql| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("PRAGMA integrity_check"), "ok");
    assert_eq!(text("PRAGMA journal_mode"), "delete");
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(number("SELECT count(*) FROM timers WHERE key IS NOT NULL"), 200);
    assert_eq!(number("SELECT is_open FROM timer_store"), 0);
    drop(connection);

    let restored = DurableTimers::builder(SqliteStore::open(backup(&file)).unwrap());
    let timers = restored.topic(sending("topic").0).start(&group).unwrap();
    assert!(done(timers.counts()).unwrap()[0].pending >= 200);
    done(timers.at("topic", HOUR, "new").start()).unwrap();
    done(timers.close()).unwrap();
    SqliteStore::open(backup(&file)).unwrap();
    end(&group);
}

#[test]
fn timers_of_a_restored_backup_that_have_fired_since_fire_again() {
    let (file, group) = (File::new(), one_loop());
    let (sent, fired) = channel();
    let topic = || {
        let sent = sent.clone();
        Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
            sent.send(due.payload().clone()).unwrap();
            due.done();
        })
    };
    let timers = file.open().topic(topic()).start(&group).unwrap();
    let id = done(timers.at("topic", HOUR, "once").start()).unwrap();
    done(timers.backup_to(backup(&file))).unwrap();
    done(timers.run_now(id)).unwrap();
    assert_eq!(receive(&fired), "once");
    done(timers.close()).unwrap();

    fs::rename(backup(&file), file.path()).unwrap();
    let timers = file.open().topic(topic()).start(&group).unwrap();
    done(timers.run_now(id)).unwrap();
    assert_eq!(receive(&fired), "once");
    done(timers.close()).unwrap();
    end(&group);
}

/// SQLite would apply the log to the backup, and damage it.
#[test]
fn a_backup_beside_the_log_of_another_file_is_refused() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    done(timers.at("topic", HOUR, "before").start()).unwrap();
    done(timers.backup_to(backup(&file))).unwrap();
    done(timers.at("topic", HOUR, "after").start()).unwrap();
    // As if the program had been killed.
    let log = file.path().with_extension("db-wal");
    let kept = fs::read(&log).unwrap();
    done(timers.close()).unwrap();
    fs::write(&log, kept).unwrap();
    fs::rename(backup(&file), file.path()).unwrap();
    let before = fs::read(file.path()).unwrap();
    let Err(StoreError::Failed(why)) = SqliteStore::open(file.path()) else { panic!("it was opened") };
    assert!(why.contains("timers.db-wal is the log of another file; remove it"), "{why}");
    assert!(fs::read(file.path()).unwrap() == before, "the backup was changed");

    fs::remove_file(log).unwrap();
    let _ = fs::remove_file(file.path().with_extension("db-shm"));
    let mut store = SqliteStore::open(file.path()).unwrap();
    assert_eq!(store.counts().unwrap()[0].pending, 1);
    end(&group);
}

#[test]
fn a_backup_replaces_no_file() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    fs::write(backup(&file), "precious").unwrap();
    let error = done(timers.backup_to(backup(&file))).unwrap_err().to_string();
    assert!(error.contains("timers.backup exists already"), "{error}");
    assert_eq!(fs::read(backup(&file)).unwrap(), b"precious");
    fs::remove_file(backup(&file)).unwrap();
    fs::write(file.path().with_extension("backup-wal"), "a log").unwrap();
    let error = done(timers.backup_to(backup(&file))).unwrap_err().to_string();
    assert!(error.contains("timers.backup-wal exists already"), "{error}");
    let error = done(timers.backup_to(file.path())).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    let nowhere = file.path().join("nowhere").join("backup");
    assert!(done(timers.backup_to(nowhere)).is_err());
    // The store goes on.
    done(timers.at("topic", ms(0), "next").start()).unwrap();
    end(&group);
}

#[test]
fn the_rest_of_an_interrupted_backup_is_replaced() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    fs::write(file.path().with_extension("backup-partial"), "half").unwrap();
    done(timers.backup_to(backup(&file))).unwrap();
    done(timers.close()).unwrap();
    assert_eq!(names(&file), ["timers.backup", "timers.db", "timers.db-lock"]);
    end(&group);
}

#[test]
fn one_backup_is_made_at_a_time() {
    let file = File::new();
    let mut store = SqliteStore::open(file.path()).unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    let work = store.backup(&backup(&file)).unwrap();
    let other = file.path().with_extension("other");
    assert!(matches!(store.backup(&other), Err(StoreError::Busy(_))));
    // Timers stored during the backup are not part of it.
    let payload = b"1".to_vec();
    let timer = NewTimer::new(0, 1, payload);
    store.commit(&mut [Change::Start(timer)], 0).unwrap();
    work().unwrap();
    assert_eq!(SqliteStore::open(backup(&file)).unwrap().counts().unwrap()[0].pending, 0);
    store.backup(&other).unwrap()().unwrap();
    assert_eq!(SqliteStore::open(other).unwrap().counts().unwrap()[0].pending, 1);
}

#[test]
fn a_store_that_has_no_file_refuses_backups() {
    let file = File::new();
    let mut store = SqliteStore::in_memory().unwrap();
    assert!(matches!(store.backup(&backup(&file)), Err(StoreError::Failed(_))));
}
