//! What operators and limits do to whole topics: pauses, and changes of many dead letters.

use super::{
    PostgresStore, held,
    session::{PostgresSession, column},
    transaction::Transaction,
};
use crate::durable::{
    id::TimerId,
    store::{
        change::{Change, Outcome},
        dead_letters::DeadLetters,
        error::StoreError,
        row::TimerRow,
    },
};

pub(super) fn set_paused(
    session: &mut PostgresSession,
    topic: &str,
    is_paused: bool,
) -> Result<bool, StoreError> {
    if topic.contains('\0') {
        return Ok(false);
    }
    let sql = "UPDATE {schema}.topics SET paused = $2 WHERE name = $1 RETURNING id";
    Ok(!session.query(sql, &[&topic, &is_paused])?.is_empty())
}

/// The topic's row is locked, so that two nodes do not both remove letters beyond the same limit.
pub(super) fn remove_dead(
    store: &mut PostgresStore,
    session: &mut PostgresSession,
    letters: &DeadLetters,
    now: i64,
) -> Result<u64, StoreError> {
    // Most calls find nothing, and then need no transaction.
    if surplus(session, letters)?.is_none() {
        return Ok(0);
    }
    session.batch("BEGIN")?;
    session.query("SELECT id FROM {schema}.topics WHERE name = $1 FOR UPDATE", &[&letters.topic])?;
    let selected = select(session, letters)?;
    let changes = selected.into_iter().map(Change::Cancel).collect();
    Ok(apply(Transaction::new(store, session, now), changes)?.len() as u64)
}

pub(super) fn retry_dead(
    store: &mut PostgresStore,
    session: &mut PostgresSession,
    letters: &DeadLetters,
    dues: &[i64],
) -> Result<Vec<Option<TimerRow>>, StoreError> {
    if surplus(session, letters)?.is_none() {
        return Ok(Vec::new());
    }
    session.batch("BEGIN")?;
    let selected = select(session, letters)?;
    let changes = selected.into_iter().zip(dues).map(|(id, due)| Change::Move { id, due: *due });
    let outcomes = apply(Transaction::new(store, session, 0), changes.collect())?;
    Ok(outcomes.into_iter().map(Outcome::into_row).collect())
}

fn apply(mut transaction: Transaction<'_>, mut changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError> {
    let mut outcomes = vec![Outcome::Missing; changes.len()];
    held::apply(&mut transaction, &mut changes, &mut outcomes)?;
    let end = transaction.end();
    transaction.session.batch(&end)?;
    Ok(outcomes)
}

/// Returns the topic, and how many of its letters to select, if there are any.
fn surplus(session: &mut PostgresSession, letters: &DeadLetters) -> Result<Option<(i32, i64)>, StoreError> {
    if letters.topic.contains('\0') {
        return Ok(None);
    }
    let rows = session.query(
        "SELECT n.id, (SELECT coalesce(sum(c.dead), 0)::bigint FROM {schema}.counts c WHERE c.topic = n.id)
        FROM {schema}.topics n WHERE n.name = $1
            AND EXISTS (SELECT FROM {schema}.timers WHERE state = 1 AND topic = n.id AND due > $3 AND due <= $2)",
        &[&letters.topic, &letters.until, &letters.after],
    )?;
    let Some(row) = rows.first() else { return Ok(None) };
    let limit = letters.limit_of(column(row, 1)?);
    Ok((limit > 0).then_some((column(row, 0)?, limit)))
}

/// Locks the selected letters. Those that another transaction changes at the moment are left out.
fn select(session: &mut PostgresSession, letters: &DeadLetters) -> Result<Vec<TimerId>, StoreError> {
    let Some((topic, limit)) = surplus(session, letters)? else { return Ok(Vec::new()) };
    let rows = session.query(
        "SELECT id FROM {schema}.timers WHERE state = 1 AND topic = $1 AND due > $4 AND due <= $2
        ORDER BY due, id LIMIT $3 FOR UPDATE SKIP LOCKED",
        &[&topic, &letters.until, &limit, &letters.after],
    )?;
    rows.iter().map(|row| column(row, 0).map(TimerId::new)).collect()
}
