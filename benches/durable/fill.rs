//! Millions of pending timers, written faster than through the store.

use crate::{
    TEXT, TOPIC,
    bare::{Bare, now_millis},
};
use netwheel::{
    Error, Result,
    durable::rusqlite::{self, Connection, params},
};
use std::path::Path;

/// The first of the pending timers is due in an hour, so that none fires during a measurement.
const FIRST: i64 = 3600 * 1000;

/// They are due in the course of 30 days.
const RANGE: i64 = 30 * 24 * 3600 * 1000;

/// A multiplier that spreads due times over the range, in another order than that of the ids.
const STEP: i64 = 1_000_003 * 97;

/// Creates a store with pending timers.
pub(crate) fn fill(path: &Path, pending: u64) -> Result {
    // The store creates its schema itself.
    drop(Bare::open(path)?);
    insert(path, pending).map_err(|e| Error::other(format!("filling {}: {e}", path.display())))
}

fn insert(path: &Path, pending: u64) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    // A crash here costs a file of this bench.
    connection.pragma_update(None, "journal_mode", "OFF")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    // An index that is written at the end is written in its order.
    let sql = "SELECT sql FROM sqlite_schema WHERE name = 'timers_due'";
    let index: String = connection.query_row(sql, [], |row| row.get(0))?;
    connection.execute_batch("DROP INDEX timers_due")?;
    let topic: i64 =
        connection.query_row("SELECT id FROM topics WHERE name = ?1", [TOPIC], |row| row.get(0))?;
    let sql = "WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1),
            times (due) AS (SELECT ?2 + n * ?3 % ?4 FROM numbers)
        INSERT INTO timers (topic, state, due, scheduled, attempts, payload)
            SELECT ?5, 0, due, due, 0, ?6 FROM times";
    let payload = format!("\"{TEXT}\"").into_bytes();
    let pending = i64::try_from(pending).unwrap_or(i64::MAX);
    connection.execute(sql, params![pending, now_millis() + FIRST, STEP, RANGE, topic, payload])?;
    connection.execute("UPDATE topics SET pending = pending + ?2 WHERE id = ?1", params![topic, pending])?;
    connection.execute_batch(&index)?;
    connection.close().map_err(|(_, error)| error)
}
