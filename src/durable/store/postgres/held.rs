//! Changes of stored timers: ends, retries, dead letters, commands.

use super::{effects, queries, session::column, transaction::Transaction};
use crate::durable::{
    id::TimerId,
    store::{
        change::{Change, Outcome},
        error::StoreError,
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// The state of a pending timer and of a dead letter in the table.
const PENDING: i16 = 0;
const DEAD: i16 = 1;

/// [`Begun::Counted`](crate::durable::store::Begun::Counted) in the table.
const COUNTED: i16 = 2;

/// A locked timer.
struct Stored {
    partition: i32,
    topic: i32,
    state: i16,
    due: i64,
    attempts: i32,
    /// See [`Begun`](crate::durable::store::Begun).
    begun: i16,
    /// The epoch of the partition, if this node owns it.
    epoch: Option<i64>,
}

impl Stored {
    /// Returns the number of attempts with one that has ended, which may be counted already.
    fn attempts_with_this(&self) -> i32 {
        self.attempts.saturating_add(i32::from(self.begun != COUNTED))
    }
}

/// The writes of many changes, one statement for each kind.
#[derive(Default)]
struct Writes {
    removed: Vec<i64>,
    /// Runs of periodic timers that become dead letters.
    copied: Vec<i64>,
    copied_errors: Vec<String>,
    updated: Vec<i64>,
    states: Vec<i16>,
    dues: Vec<i64>,
    /// `None` to keep the scheduled time.
    scheduled: Vec<Option<i64>>,
    attempts: Vec<i32>,
    errors: Vec<Option<String>>,
    /// What was noted before the next attempt.
    begun: Vec<i16>,
    /// Whether a command has set the time.
    moved: Vec<bool>,
    /// Runs that begin, and whether their attempt is counted.
    begins: Vec<i64>,
    counted: Vec<bool>,
    /// The outcome that gets the row of an updated timer.
    waiting: BTreeMap<i64, usize>,
}

/// The new values of a timer.
struct Update {
    state: i16,
    due: i64,
    /// `None` to keep the scheduled time.
    scheduled: Option<i64>,
    attempts: i32,
    error: Option<String>,
    begun: i16,
    is_moved: bool,
}

impl Update {
    /// A timer that waits for a run without an attempt.
    fn fresh(due: i64) -> Self {
        Update {
            state: PENDING,
            due,
            scheduled: Some(due),
            attempts: 0,
            error: None,
            begun: 0,
            is_moved: false,
        }
    }

    /// A run that has failed, and waits for its next attempt.
    fn retry(due: i64, timer: &Stored, error: String) -> Self {
        let begun = timer.begun / COUNTED;
        Update {
            scheduled: None,
            attempts: timer.attempts_with_this(),
            error: Some(error),
            begun,
            ..Self::fresh(due)
        }
    }

    fn dead(now: i64, timer: &Stored, error: String) -> Self {
        Update { state: DEAD, begun: 0, ..Self::retry(now, timer, error) }
    }
}

impl Writes {
    /// Updates a timer that is pending afterwards, and whose row the engine may need.
    fn update(&mut self, index: usize, id: TimerId, update: Update) {
        self.set(id, update);
        self.waiting.insert(id.get(), index);
    }

    fn set(&mut self, id: TimerId, update: Update) {
        self.updated.push(id.get());
        self.states.push(update.state);
        self.dues.push(update.due);
        self.scheduled.push(update.scheduled);
        self.attempts.push(update.attempts);
        self.errors.push(update.error);
        self.begun.push(update.begun);
        self.moved.push(update.is_moved);
    }
}

/// Applies the changes of stored timers. Returns the number of changes, of all kinds, up to which
/// it has come: less than all if the effects have taken long.
pub(super) fn apply(
    transaction: &mut Transaction<'_>,
    changes: &mut [Change],
    outcomes: &mut [Outcome],
) -> Result<usize, StoreError> {
    let stored = lock(transaction, changes)?;
    if stored.is_empty() {
        // All of them are `Missing`, as the outcomes say already.
        return Ok(changes.len());
    }
    let mut applied = changes.len();
    let mut writes = Writes::default();
    let mut effects = effects::Effects::default();
    for (index, change) in changes.iter_mut().enumerate() {
        let id = match &*change {
            Change::Start(_) | Change::Claim { .. } => continue,
            Change::Cancel(id) | Change::Move { id, .. } => *id,
            Change::End { held, .. }
            | Change::Begin { held, .. }
            | Change::Retry { held, .. }
            | Change::DeadLetter { held, .. }
            | Change::SkipTo { held, .. } => held.key.id,
        };
        let Some(timer) = stored.get(&id) else { continue };
        if let Some(held) = change.held()
            && let Some(outcome) = transaction.refusal(held, timer.state, timer.due, timer.epoch)
        {
            outcomes[index] = outcome;
            continue;
        }
        if let Change::Begin { held, .. } = change
            && !transaction.store.ownership.may_claim(*held)
        {
            transaction.store.changes.recheck(id);
            outcomes[index] = Outcome::Refused(StoreError::StaleEpoch);
            continue;
        }
        if let Change::End { effect: Some(effect), .. } = change {
            if !transaction.may_run_effect() {
                applied = index;
                break;
            }
            let lost = &mut transaction.store.lost_in;
            if let Some(refused) = effects.run_for(id, lost, transaction.session, effect)? {
                outcomes[index] = refused;
                continue;
            }
        }
        outcomes[index] = Outcome::Done(None);
        plan(transaction, &mut writes, index, change, id, timer);
    }
    write(transaction, writes, outcomes)?;
    Ok(applied)
}

/// Adds the writes of a change that was checked.
fn plan(
    transaction: &mut Transaction<'_>,
    writes: &mut Writes,
    index: usize,
    change: &Change,
    id: TimerId,
    timer: &Stored,
) {
    let now = transaction.now;
    let mut count = |pending, dead| transaction.count(timer.topic, timer.partition, pending, dead);
    match change {
        Change::End { next: Some(next), .. } | Change::SkipTo { next, .. } => {
            writes.update(index, id, Update::fresh(*next));
        }
        Change::End { next: None, .. } | Change::Cancel(_) => {
            writes.removed.push(id.get());
            if timer.state == DEAD { count(0, -1) } else { count(-1, 0) }
        }
        Change::Begin { is_counted, .. } => {
            writes.begins.push(id.get());
            writes.counted.push(*is_counted);
        }
        Change::Retry { due, error, .. } => {
            writes.update(index, id, Update::retry(*due, timer, clean(error)));
        }
        Change::DeadLetter { next: Some(next), error, .. } => {
            writes.copied.push(id.get());
            writes.copied_errors.push(clean(error));
            writes.update(index, id, Update::fresh(*next));
            count(0, 1);
        }
        Change::DeadLetter { next: None, error, .. } => {
            writes.set(id, Update::dead(now, timer, clean(error)));
            count(-1, 1);
        }
        Change::Move { due, .. } => {
            writes.update(index, id, Update { is_moved: true, ..Update::fresh(*due) });
            if timer.state == DEAD {
                count(1, -1);
            }
        }
        Change::Start(_) | Change::Claim { .. } => {}
    }
}

/// Locks the timers, and the partitions that must still be this node's when the transaction ends.
///
/// The lease is not looked at: as long as the owner and the epoch are the same, no other node has
/// taken over, and the locks prevent it. So a node that was slow for a moment does not repeat runs.
fn lock(
    transaction: &mut Transaction<'_>,
    changes: &[Change],
) -> Result<BTreeMap<TimerId, Stored>, StoreError> {
    let mut ids = Vec::new();
    let mut partitions = BTreeSet::new();
    for change in changes {
        match change {
            Change::Start(_) | Change::Claim { .. } => {}
            Change::Cancel(id) | Change::Move { id, .. } => ids.push(id.get()),
            held => {
                if let Some(held) = held.held() {
                    ids.push(held.key.id.get());
                    partitions.insert(held.partition as i32);
                }
            }
        }
    }
    let mut stored = BTreeMap::new();
    if ids.is_empty() {
        return Ok(stored);
    }
    let partitions: Vec<i32> = partitions.into_iter().collect();
    let rows = transaction.session.query(
        "WITH stored AS MATERIALIZED (
            SELECT id, partition, topic, state, due, attempts, begun FROM {schema}.timers
            WHERE id = ANY($1) ORDER BY id FOR UPDATE
        ), owned AS MATERIALIZED (
            SELECT id, epoch FROM {schema}.partitions
            WHERE id = ANY($2) AND owner = $3 ORDER BY id FOR SHARE
        )
        SELECT s.id, s.partition, s.topic, s.state, s.due, s.attempts, s.begun, o.epoch
        FROM stored s LEFT JOIN owned o ON o.id = s.partition",
        &[&ids, &partitions, &transaction.store.node],
    )?;
    for row in &rows {
        let timer = Stored {
            partition: column(row, 1)?,
            topic: column(row, 2)?,
            state: column(row, 3)?,
            due: column(row, 4)?,
            attempts: column(row, 5)?,
            begun: column(row, 6)?,
            epoch: column(row, 7)?,
        };
        stored.insert(TimerId::new(column(row, 0)?), timer);
    }
    Ok(stored)
}

fn write(
    transaction: &mut Transaction<'_>,
    writes: Writes,
    outcomes: &mut [Outcome],
) -> Result<(), StoreError> {
    let session_id = transaction.session.id();
    if !writes.removed.is_empty() {
        // A periodic timer that was cancelled may be started again, so its key is not remembered.
        transaction.session.query(
            "WITH gone AS (DELETE FROM {schema}.timers WHERE id = ANY($1) RETURNING id, topic, key, schedule)
            INSERT INTO {schema}.ended_keys (topic, key, id, ended)
            SELECT topic, key, id, $2 FROM gone WHERE key IS NOT NULL AND schedule IS NULL
            ORDER BY topic, key
            ON CONFLICT (topic, key) DO UPDATE SET id = excluded.id, ended = excluded.ended",
            &[&writes.removed, &transaction.now],
        )?;
    }
    if !writes.copied.is_empty() {
        transaction.session.query(
            "INSERT INTO {schema}.timers
                (partition, topic, state, due, scheduled, attempts, payload, error, changed_by, changed_in)
            SELECT t.partition, t.topic, 1, $4, t.scheduled, t.attempts + (t.begun <> 2)::integer, t.payload,
                u.error, $3,
                pg_current_xact_id()::text::bigint
            FROM unnest($1::bigint[], $2::text[]) AS u (id, error) JOIN {schema}.timers t ON t.id = u.id",
            &[&writes.copied, &writes.copied_errors, &session_id, &transaction.now],
        )?;
    }
    if !writes.begins.is_empty() {
        transaction.session.query(
            "UPDATE {schema}.timers t SET attempts = t.attempts + (u.is_counted AND t.begun <> 2)::integer,
                begun = greatest(t.begun, 1 + u.is_counted::integer)
            FROM unnest($1::bigint[], $2::boolean[]) AS u (id, is_counted) WHERE t.id = u.id",
            &[&writes.begins, &writes.counted],
        )?;
    }
    if writes.updated.is_empty() {
        return Ok(());
    }
    let rows = transaction.session.query(
        "UPDATE {schema}.timers t SET state = u.state, due = u.due,
            scheduled = coalesce(u.scheduled, t.scheduled), attempts = u.attempts, error = u.error,
            begun = u.begun, moved = u.moved,
            changed_by = $7, changed_in = pg_current_xact_id()::text::bigint
        FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::text[],
            $8::smallint[], $9::boolean[])
            AS u (id, state, due, scheduled, attempts, error, begun, moved)
        WHERE t.id = u.id
        RETURNING t.id, t.partition, t.topic, t.due, t.scheduled, t.attempts, t.key, t.schedule, t.payload,
            t.begun",
        &[
            &writes.updated,
            &writes.states,
            &writes.dues,
            &writes.scheduled,
            &writes.attempts,
            &writes.errors,
            &session_id,
            &writes.begun,
            &writes.moved,
        ],
    )?;
    for row in &rows {
        if let Some(index) = writes.waiting.get(&column::<i64>(row, 0)?) {
            outcomes[*index] = Outcome::Done(queries::timer(transaction.store, row, 0)?);
        }
    }
    Ok(())
}

/// PostgreSQL stores no NUL characters in texts.
fn clean(error: &str) -> String {
    error.replace('\0', "\u{fffd}")
}
