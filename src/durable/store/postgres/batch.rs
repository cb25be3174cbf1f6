//! One transaction with many changes.
//!
//! The number of requests does not depend on the number of changes. One request makes the claims,
//! and one locks the timers of all other changes. There is one for each kind of write, one for the
//! starts, and one that updates the counts and commits. Claims alone run without a transaction. An
//! effect takes two requests in addition to its own.

use super::{held, session::column, starts, transaction::Transaction};
use crate::durable::{
    id::TimerId,
    store::{
        change::{Change, Outcome},
        error::StoreError,
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// Makes all changes or none, but only the first ones if their effects take long. After an error,
/// the caller rolls back.
pub(super) fn commit(
    mut transaction: Transaction<'_>,
    changes: &mut [Change],
) -> Result<Vec<Outcome>, StoreError> {
    let is_writing = changes.iter().any(|change| !matches!(change, Change::Claim { .. }));
    if is_writing {
        transaction.session.batch("BEGIN")?;
    }
    let mut outcomes = vec![Outcome::Missing; changes.len()];
    let mut made = 0;
    while made < changes.len() {
        let group = made..made + independent(&changes[made..]);
        let (changes, outcomes) = (&mut changes[group.clone()], &mut outcomes[group.clone()]);
        claim(&mut transaction, changes, outcomes)?;
        let applied = held::apply(&mut transaction, changes, outcomes)?;
        starts::apply(&mut transaction, &changes[..applied], &mut outcomes[..applied])?;
        made += applied;
        if made < group.end {
            break;
        }
    }
    outcomes.truncate(made);
    if is_writing {
        let end = transaction.end();
        transaction.session.batch(&end)?;
    }
    Ok(outcomes)
}

/// Looks whether this node still owns the runs, and whether they are as they were loaded.
fn claim(
    transaction: &mut Transaction<'_>,
    changes: &[Change],
    outcomes: &mut [Outcome],
) -> Result<(), StoreError> {
    let mut wanted = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        if let Change::Claim { held } = change {
            if transaction.store.ownership.may_claim(*held) {
                wanted.push((index, *held));
            } else {
                transaction.store.changes.recheck(held.key.id);
                outcomes[index] = Outcome::Refused(StoreError::StaleEpoch);
            }
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = wanted.iter().map(|(_, held)| held.key.id.get()).collect();
    let rows = transaction.session.query(
        "SELECT t.id, t.state, t.due, p.epoch FROM {schema}.timers t
        LEFT JOIN {schema}.partitions p
            ON p.id = t.partition AND p.owner = $2 AND p.lease_until > clock_timestamp()
        WHERE t.id = ANY($1)",
        &[&ids, &transaction.store.node],
    )?;
    let mut stored = BTreeMap::new();
    for row in &rows {
        let state: (i16, i64, Option<i64>) = (column(row, 1)?, column(row, 2)?, column(row, 3)?);
        stored.insert(column::<i64>(row, 0)?, state);
    }
    for (index, held) in wanted {
        let found = stored.get(&held.key.id.get());
        if let Some((state, due, epoch)) = found {
            let refused = transaction.refusal(held, *state, *due, *epoch);
            outcomes[index] = refused.unwrap_or(Outcome::Done(None));
        }
    }
    Ok(())
}

/// Returns how many of the first changes are independent, so that changes of one kind can be made
/// together. Two changes of one timer are dependent. So are a command and a start that has a key,
/// and a change of a run and a start that may change a timer. Two such starts with the same key are
/// dependent too.
fn independent(changes: &[Change]) -> usize {
    let mut ids: BTreeSet<TimerId> = BTreeSet::new();
    let mut changing = BTreeSet::new();
    let (mut has_command, mut has_key, mut has_run) = (false, false, false);
    for (index, change) in changes.iter().enumerate() {
        let mut is_twice = false;
        match change {
            Change::Start(timer) => {
                has_key |= timer.idempotency_key.is_some();
                if timer.may_change_another() {
                    is_twice = !changing.insert((timer.topic, timer.idempotency_key.as_deref()));
                }
            }
            Change::Cancel(id) | Change::Move { id, .. } => {
                has_command = true;
                is_twice = !ids.insert(*id);
            }
            other => {
                has_run = true;
                is_twice = other.held().is_some_and(|held| !ids.insert(held.key.id));
            }
        }
        let depends = is_twice || (has_command && has_key) || (has_run && !changing.is_empty());
        // The first one depends on nothing.
        if depends && index > 0 {
            return index;
        }
    }
    changes.len()
}
