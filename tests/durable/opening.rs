//! Opening files: locks, other files, versions.

use crate::{
    support::{
        loops::end,
        process::example,
        wait::{HOUR, done, ms, receive},
    },
    timers::{File, started},
};
use netwheel::durable::{SqliteStore, StoreError, TimerFilter, rusqlite::Connection};
use std::{fs, process::Command};

/// P-23.
#[test]
fn a_store_is_locked_while_it_is_open() {
    let file = File::new();
    let open = SqliteStore::open(file.path()).unwrap();
    assert!(matches!(SqliteStore::open(file.path()), Err(StoreError::InUse)));
    drop(open);
    SqliteStore::open(file.path()).unwrap();
}

/// The system drops the POSIX locks of a process when it closes any handle to the file.
#[test]
fn a_store_stays_locked_while_the_program_copies_its_file() {
    let file = File::new();
    let open = SqliteStore::open(file.path()).unwrap();
    fs::copy(file.path(), file.path().with_extension("copy")).unwrap();
    drop(fs::File::open(file.path()).unwrap());
    // Of another process, because the locks of this one do not exclude each other.
    let output = Command::new(example("timers")).arg(file.path()).arg("counts").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in use"), "{output:?}");
    drop(open);
    SqliteStore::open(file.path()).unwrap();
}

#[cfg(unix)]
#[test]
fn a_link_to_a_store_has_the_same_lock() {
    let file = File::new();
    let link = file.path().with_extension("link");
    std::os::unix::fs::symlink(file.path(), &link).unwrap();
    let open = SqliteStore::open(&link).unwrap();
    assert!(matches!(SqliteStore::open(file.path()), Err(StoreError::InUse)));
    drop(open);
    let open = SqliteStore::open(file.path()).unwrap();
    assert!(matches!(SqliteStore::open(&link), Err(StoreError::InUse)));
    drop(open);
}

#[test]
fn a_store_in_memory_needs_no_lock() {
    let open = SqliteStore::open(":memory:").unwrap();
    SqliteStore::open(":memory:").unwrap();
    drop(open);
}

#[test]
fn connections_of_the_program_read_and_write_the_file_of_an_open_store() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let connection = Connection::open(file.path()).unwrap();
    connection.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    done(timers.at("topic", HOUR, "later").start()).unwrap();
    let pending = || connection.query_row("SELECT count(*) FROM timers", [], |row| row.get::<_, i64>(0));
    assert_eq!(pending(), Ok(1));
    // The store waits for a writer that is done soon.
    connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO mine VALUES (2)").unwrap();
    let start = timers.at("topic", HOUR, "waits").start();
    connection.execute_batch("COMMIT").unwrap();
    done(start).unwrap();
    // It does not wait forever.
    connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO mine VALUES (3)").unwrap();
    let refused = done(timers.at("topic", HOUR, "refused").start()).unwrap_err();
    assert!(refused.to_string().contains("busy"), "{refused}");
    connection.execute_batch("COMMIT").unwrap();
    done(timers.at("topic", ms(0), "now").start()).unwrap();
    assert_eq!(receive(&runs), "now");
    done(timers.close()).unwrap();
    assert_eq!(pending(), Ok(2));
    end(&group);
}

/// P-23.
#[test]
fn other_files_are_refused_and_left_alone() {
    let file = File::new();
    fs::write(
        file.path(),
        "this is a diary, and longer than the header of a database, which has 100 bytes in SQLite",
    )
    .unwrap();
    assert!(matches!(SqliteStore::open(file.path()), Err(StoreError::NotAStore)));
    assert!(fs::read_to_string(file.path()).unwrap().starts_with("this is a diary"));

    for mode in ["DELETE", "WAL"] {
        let file = File::new();
        let connection = Connection::open(file.path()).unwrap();
        connection.pragma_update(None, "journal_mode", mode).unwrap();
        connection.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
        drop(connection);
        let before = fs::read(file.path()).unwrap();
        assert!(matches!(SqliteStore::open(file.path()), Err(StoreError::NotAStore)));
        assert!(fs::read(file.path()).unwrap() == before, "a database in mode {mode} was changed");
        assert!(!file.path().with_extension("db-lock").exists());
    }
}

#[test]
fn a_missing_directory_is_an_error() {
    let file = File::new();
    let path = file.path().join("nowhere").join("timers.db");
    assert!(matches!(SqliteStore::open(path), Err(StoreError::Failed(_))));
}

/// P-23.
#[test]
fn a_newer_version_is_refused() {
    let file = File::new();
    drop(SqliteStore::open(file.path()).unwrap());
    let connection = Connection::open(file.path()).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    assert!(matches!(SqliteStore::open(file.path()), Err(StoreError::Version { found: 99, .. })));
}

/// Version 1 had no memory of ended keys.
/// P-23.
#[test]
fn a_store_of_version_1_is_migrated_with_its_timers() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let id = done(timers.at("topic", HOUR, "old").key("k").start()).unwrap();
    done(timers.close()).unwrap();
    let connection = Connection::open(file.path()).unwrap();
    let sql = "DROP TABLE ended_keys; DROP TABLE timer_store; ALTER TABLE timers DROP COLUMN begun;
        ALTER TABLE timers DROP COLUMN moved; DROP INDEX timers_periodic;
        ALTER TABLE topics DROP COLUMN paused; DROP INDEX timers_dead; DROP INDEX timers_dead_topic;
        DROP INDEX timers_dead_due; CREATE INDEX timers_dead ON timers (topic) WHERE state = 1;
        PRAGMA user_version = 1";
    connection.execute_batch(sql).unwrap();
    drop(connection);

    let (next_group, timers, _runs) = started(&file);
    let listed = done(timers.list(TimerFilter::new())).unwrap();
    assert_eq!((listed.len(), listed[0].id, listed[0].payload.as_str()), (1, id, "\"old\""));
    assert_eq!(done(timers.at("topic", HOUR, "new").key("k").start()).unwrap(), id);
    done(timers.close()).unwrap();
    let connection = Connection::open(file.path()).unwrap();
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 3);
    end(&group);
    end(&next_group);
}
