//! Opening files: locks, other files, versions.

use crate::{
    support::{
        loops::end,
        wait::{HOUR, done},
    },
    timers::{File, started},
};
use netwheel::durable::{SqliteStore, StoreError, TimerFilter, rusqlite::Connection};
use std::fs;

/// P-23.
#[test]
fn a_store_is_locked_while_it_is_open() {
    let file = File::new();
    let open = SqliteStore::open(file.path()).unwrap();
    assert!(matches!(SqliteStore::open(file.path()), Err(StoreError::InUse)));
    drop(open);
    SqliteStore::open(file.path()).unwrap();
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

    let file = File::new();
    let connection = Connection::open(file.path()).unwrap();
    connection.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    drop(connection);
    assert!(matches!(SqliteStore::open(file.path()), Err(StoreError::NotAStore)));
    let connection = Connection::open(file.path()).unwrap();
    assert_eq!(connection.query_row("SELECT count(*) FROM mine", [], |row| row.get::<_, i64>(0)), Ok(1));
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
