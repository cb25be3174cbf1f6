//! Starts of timers.

use super::{
    queries,
    session::{Statements, column},
    transaction::Transaction,
};
use crate::durable::{
    id::TimerId,
    store::{
        change::{Change, NewTimer, Outcome},
        error::StoreError,
        remembered::Remembered,
        row::TimerRow,
    },
};
use std::collections::BTreeMap;

/// How often a start is tried whose key another node uses and gives up at the same time.
pub(super) const ATTEMPTS: u32 = 3;

/// What a row of the answer says about a start.
const STARTED: i16 = 0;
const STORED: i16 = 1;

/// A timer to store.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    pub(super) topic: i32,
    pub(super) partition: i32,
    pub(super) timer: &'a NewTimer,
}

/// What a start has found or done.
pub(super) enum Found {
    Started(TimerId),
    /// A timer with the same key is stored, with this schedule.
    Stored(TimerId, Option<String>),
    /// A timer with the same key has ended.
    Ended(TimerId),
}

/// Applies all starts.
pub(super) fn apply(
    transaction: &mut Transaction<'_>,
    changes: &[Change],
    outcomes: &mut [Outcome],
) -> Result<(), StoreError> {
    let mut waiting = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let Change::Start(timer) = change else { continue };
        match (transaction.store.topics.get(timer.topic), check_key(timer)) {
            (None, _) => {
                let error = StoreError::failed("a timer of a topic that is not attached");
                outcomes[index] = Outcome::Refused(error);
            }
            (Some(_), Err(error)) => outcomes[index] = Outcome::Refused(error),
            (Some((_, topic)), Ok(())) => {
                let topic = *topic;
                let partition = transaction.store.ownership.place(transaction.store.partitions) as i32;
                waiting.push((index, Start { topic, partition, timer }));
            }
        }
    }
    let remembered = Remembered::at(transaction.now, transaction.store.settings.key_memory);
    for _ in 0..ATTEMPTS {
        if waiting.is_empty() {
            return Ok(());
        }
        let session_id = transaction.session.id();
        let starts: Vec<Start<'_>> = waiting.iter().map(|(_, start)| *start).collect();
        let found = insert(transaction.session, session_id, &remembered, &starts)?;
        let mut left = Vec::new();
        for ((index, start), found) in waiting.into_iter().zip(found) {
            match found {
                Some(found) => outcomes[index] = outcome(transaction, &start, found)?,
                None => left.push((index, start)),
            }
        }
        waiting = left;
    }
    Err(keys_change())
}

/// Returns an error if the server cannot store the key of a timer.
pub(super) fn check_key(timer: &NewTimer) -> Result<(), StoreError> {
    match &timer.idempotency_key {
        Some(key) if key.contains('\0') => Err(StoreError::failed("a key with a NUL character")),
        _ => Ok(()),
    }
}

/// The error of a start that was tried too often.
pub(super) fn keys_change() -> StoreError {
    StoreError::Busy("the keys of timers change all the time".into())
}

/// Counts a new timer, and changes a stored one as the start asks.
fn outcome(
    transaction: &mut Transaction<'_>,
    start: &Start<'_>,
    found: Found,
) -> Result<Outcome, StoreError> {
    let timer = start.timer;
    Ok(match found {
        Found::Started(id) => {
            transaction.count(start.topic, start.partition, 1, 0);
            Outcome::Started(row_of(transaction, timer, id, start.partition.unsigned_abs()))
        }
        Found::Stored(id, schedule) if timer.has_other_schedule(schedule.as_deref()) => {
            Outcome::AlreadyStarted { id, changed: reschedule(transaction, id, timer)? }
        }
        Found::Stored(id, _) if timer.replaces_payload => {
            Outcome::AlreadyStarted { id, changed: replace_payload(transaction, id, timer)? }
        }
        Found::Stored(id, _) | Found::Ended(id) => Outcome::AlreadyStarted { id, changed: None },
    })
}

/// Stores timers whose keys are unknown, and returns what became of each. `None` for a timer whose
/// key another transaction has stored in the meantime. Keys of timers that have ended
/// are free if they are not remembered.
pub(super) fn insert(
    statements: &mut impl Statements,
    session_id: i64,
    remembered: &Remembered,
    starts: &[Start<'_>],
) -> Result<Vec<Option<Found>>, StoreError> {
    let (mut topics, mut partitions, mut dues) = (Vec::new(), Vec::new(), Vec::new());
    let (mut keys, mut schedules, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
    for Start { topic, partition, timer } in starts {
        topics.push(*topic);
        partitions.push(*partition);
        dues.push(timer.due);
        keys.push(timer.idempotency_key.as_deref());
        schedules.push(timer.schedule.as_deref());
        payloads.push(timer.payload.as_slice());
    }
    // Inserted in the order of their keys, so that nodes with the same keys do not deadlock.
    let rows = statements.query(
        "WITH input AS MATERIALIZED (
            SELECT * FROM unnest($1::integer[], $2::integer[], $3::bigint[], $4::text[], $5::text[],
                $6::bytea[]) WITH ORDINALITY AS i (topic, partition, due, key, schedule, payload, place)
        ), known AS MATERIALIZED (
            SELECT i.place, t.id, 1::smallint AS kind, t.schedule
            FROM input i JOIN {schema}.timers t ON t.topic = i.topic AND t.key = i.key
            UNION ALL
            SELECT i.place, e.id, 2::smallint, NULL
            FROM input i JOIN {schema}.ended_keys e ON e.topic = i.topic AND e.key = i.key
            WHERE e.ended BETWEEN $7 AND $9
        ), numbered AS MATERIALIZED (
            SELECT nextval('{schema}.timers_id_seq') AS id, n.* FROM (
                SELECT * FROM input WHERE place NOT IN (SELECT place FROM known) ORDER BY place
            ) n
        ), added AS (
            INSERT INTO {schema}.timers (id, partition, topic, state, due, scheduled, attempts, key,
                schedule, payload, changed_by, changed_in)
            SELECT id, partition, topic, 0, due, due, 0, key, schedule, payload, $8,
                pg_current_xact_id()::text::bigint
            FROM numbered ORDER BY topic, key, place
            ON CONFLICT (topic, key) WHERE key IS NOT NULL DO NOTHING RETURNING id
        )
        SELECT n.place, n.id, 0::smallint AS kind, NULL::text FROM numbered n JOIN added USING (id)
        UNION ALL SELECT * FROM known
        ORDER BY 1, 3 DESC",
        &[
            &topics,
            &partitions,
            &dues,
            &keys,
            &schedules,
            &payloads,
            &remembered.first(),
            &session_id,
            &remembered.last(),
        ],
    )?;
    // A stored timer comes after an ended one with the same key, and counts.
    let mut found: BTreeMap<i64, (TimerId, i16, Option<String>)> = BTreeMap::new();
    for row in &rows {
        found.insert(column(row, 0)?, (TimerId::new(column(row, 1)?), column(row, 2)?, column(row, 3)?));
    }
    let ended = ended_meanwhile(statements, starts, &found, remembered)?;
    let result = (1..=starts.len() as i64).map(|place| {
        let (id, kind, schedule) = found.remove(&place)?;
        Some(match (ended.get(&place), kind) {
            (Some(id), _) => Found::Ended(*id),
            (None, STARTED) => Found::Started(id),
            (None, STORED) => Found::Stored(id, schedule),
            (None, _) => Found::Ended(id),
        })
    });
    Ok(result.collect())
}

/// Removes new timers whose key belongs to a timer that has ended while this statement ran. The
/// statement did not see the end, but only the free key. Returns the ids of the ended timers.
fn ended_meanwhile(
    statements: &mut impl Statements,
    starts: &[Start<'_>],
    found: &BTreeMap<i64, (TimerId, i16, Option<String>)>,
    remembered: &Remembered,
) -> Result<BTreeMap<i64, TimerId>, StoreError> {
    let (mut places, mut topics, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for (place, start) in (1..).zip(starts) {
        if let (Some(key), Some((_, STARTED, _))) = (&start.timer.idempotency_key, found.get(&place)) {
            places.push(place);
            topics.push(start.topic);
            texts.push(key.as_str());
        }
    }
    let mut ended = BTreeMap::new();
    if places.is_empty() {
        return Ok(ended);
    }
    let rows = statements.query(
        "SELECT n.place, e.id FROM unnest($1::bigint[], $2::integer[], $3::text[]) AS n (place, topic, key)
        JOIN {schema}.ended_keys e ON e.topic = n.topic AND e.key = n.key WHERE e.ended BETWEEN $4 AND $5",
        &[&places, &topics, &texts, &remembered.first(), &remembered.last()],
    )?;
    let mut removed = Vec::new();
    for row in &rows {
        let place: i64 = column(row, 0)?;
        ended.insert(place, TimerId::new(column(row, 1)?));
        removed.extend(found.get(&place).map(|(id, ..)| id.get()));
    }
    if !removed.is_empty() {
        statements.query("DELETE FROM {schema}.timers WHERE id = ANY($1)", &[&removed])?;
    }
    Ok(ended)
}

/// Gives a periodic timer another schedule. A run whose time has come keeps its times.
fn reschedule(
    transaction: &mut Transaction<'_>,
    id: TimerId,
    timer: &NewTimer,
) -> Result<Option<TimerRow>, StoreError> {
    let session_id = transaction.session.id();
    let rows = transaction.session.query(
        "WITH old AS (
            SELECT id, state, state = 0 AND scheduled <= $6 AS is_due FROM {schema}.timers
            WHERE id = $1 FOR UPDATE
        )
        UPDATE {schema}.timers t SET schedule = $2, payload = $3, state = 0,
            due = CASE WHEN is_due THEN due ELSE $4 END,
            scheduled = CASE WHEN is_due THEN scheduled ELSE $4 END,
            attempts = CASE WHEN is_due THEN attempts ELSE 0 END,
            begun = CASE WHEN is_due THEN begun ELSE 0 END,
            moved = moved AND is_due,
            error = CASE WHEN is_due THEN error END,
            changed_by = $5, changed_in = pg_current_xact_id()::text::bigint
        FROM old WHERE t.id = old.id
        RETURNING t.id, t.partition, t.topic, t.due, t.scheduled, t.attempts, t.key, t.schedule, t.payload,
            t.begun, old.state",
        &[&id.get(), &timer.schedule, &timer.payload, &timer.due, &session_id, &transaction.now],
    )?;
    let Some(row) = rows.first() else { return Ok(None) };
    if column::<i16>(row, 10)? != 0 {
        transaction.count(column(row, 2)?, column(row, 1)?, 1, -1);
    }
    queries::timer(transaction.store, row, 0)
}

/// Gives a stored timer another payload. Returns it if it is pending.
fn replace_payload(
    transaction: &mut Transaction<'_>,
    id: TimerId,
    timer: &NewTimer,
) -> Result<Option<TimerRow>, StoreError> {
    let session_id = transaction.session.id();
    let rows = transaction.session.query(
        "UPDATE {schema}.timers SET payload = $2, changed_by = $3,
            changed_in = pg_current_xact_id()::text::bigint
        WHERE id = $1
        RETURNING id, partition, topic, due, scheduled, attempts, key, schedule, payload, begun, state",
        &[&id.get(), &timer.payload, &session_id],
    )?;
    match rows.first() {
        Some(row) if column::<i16>(row, 10)? == 0 => queries::timer(transaction.store, row, 0),
        _ => Ok(None),
    }
}

fn row_of(transaction: &Transaction<'_>, timer: &NewTimer, id: TimerId, partition: u32) -> TimerRow {
    // No epoch is 0, so the engine leaves the timers of other nodes to them.
    let epoch = transaction.store.ownership.epoch(partition).unwrap_or(0);
    TimerRow { partition, epoch, ..timer.stored_row(id) }
}
