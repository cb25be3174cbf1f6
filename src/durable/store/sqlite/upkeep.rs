//! What operators and limits do to whole topics: pauses, and changes of many dead letters.

use super::{SqliteStore, changes::SqliteBatch};
use crate::{
    durable::{
        id::TimerId,
        store::{dead_letters::DeadLetters, error::StoreError, row::TimerRow},
    },
    sqlite::CachedStatements,
};
use rusqlite::params;

/// The dead letters to change. The oldest are found with their index.
const SELECT: &str = "SELECT id FROM timers INDEXED BY timers_dead_due
    WHERE state = 1 AND topic = ?1 AND due > ?4 AND due <= ?2 ORDER BY due, id LIMIT ?3";

pub(super) fn set_paused(store: &mut SqliteStore, topic: &str, is_paused: bool) -> Result<bool, StoreError> {
    SqliteBatch::new(store, 0).transact(true, |batch| {
        let sql = "UPDATE topics SET paused = ?2 WHERE name = ?1";
        Ok(batch.connection().run(sql, params![topic, is_paused])? > 0)
    })
}

pub(super) fn remove_dead(
    store: &mut SqliteStore,
    letters: &DeadLetters,
    now: i64,
) -> Result<u64, StoreError> {
    store.read.close(&store.database.connection);
    // Most calls find nothing, and then need no transaction.
    if select(&mut SqliteBatch::new(store, now), letters)?.is_empty() {
        return Ok(0);
    }
    SqliteBatch::new(store, now).transact(false, |batch| {
        let selected = select(batch, letters)?;
        for id in &selected {
            batch.cancel(*id)?;
        }
        batch.finish()?;
        Ok(selected.len() as u64)
    })
}

pub(super) fn retry_dead(
    store: &mut SqliteStore,
    letters: &DeadLetters,
    dues: &[i64],
) -> Result<Vec<Option<TimerRow>>, StoreError> {
    SqliteBatch::new(store, 0).transact(false, |batch| {
        let mut retried = Vec::with_capacity(dues.len());
        for (id, due) in select(batch, letters)?.into_iter().zip(dues) {
            retried.push(batch.move_to(id, *due, true)?.into_row());
        }
        batch.finish()?;
        Ok(retried)
    })
}

/// Returns the ids of the selected letters.
fn select(batch: &mut SqliteBatch<'_>, letters: &DeadLetters) -> Result<Vec<TimerId>, StoreError> {
    let connection = batch.connection();
    let sql = "SELECT id, dead FROM topics WHERE name = ?1 AND dead > 0";
    let topic = connection.one(sql, [&letters.topic], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
    let Some((topic, dead)) = topic else { return Ok(Vec::new()) };
    let values = params![topic, letters.until, letters.limit_of(dead), letters.after];
    Ok(connection.all(SELECT, values, |row| row.get(0).map(TimerId::new))?)
}
