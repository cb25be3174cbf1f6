//! One transaction with many changes.
//!
//! The number of requests does not depend on the number of changes: one for the claims, one that
//! locks the timers of all other changes, one for each kind of write, one for the starts, and one
//! that updates the counts and commits. Claims alone need no transaction. An effect takes one request
//! and its own.

use super::{
    Change, Held, Outcome, PostgresStore, StoreError, held, ownership,
    session::{Session, column},
    starts,
};
use crate::durable::TimerId;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

pub(super) struct Batch<'a> {
    pub(super) store: &'a mut PostgresStore,
    pub(super) session: &'a mut Session,
    pub(super) now: i64,
    /// The changes of pending timers and dead letters, by topic and partition.
    counts: BTreeMap<(i32, i32), (i64, i64)>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(store: &'a mut PostgresStore, session: &'a mut Session, now: i64) -> Self {
        Batch { store, session, now, counts: BTreeMap::new() }
    }

    /// Makes all changes or none. After an error, the caller rolls back.
    pub(super) fn commit(mut self, changes: &mut [Change]) -> Result<Vec<Outcome>, StoreError> {
        let is_writing = changes.iter().any(|change| !matches!(change, Change::Claim { .. }));
        if is_writing {
            self.session.batch("BEGIN")?;
        }
        let mut outcomes = vec![Outcome::Missing; changes.len()];
        let mut rest = (&mut *changes, &mut *outcomes);
        while !rest.0.is_empty() {
            let length = independent(rest.0);
            let (changes, more_changes) = rest.0.split_at_mut(length);
            let (outcomes, more_outcomes) = rest.1.split_at_mut(length);
            self.claim(changes, outcomes)?;
            held::apply(&mut self, changes, outcomes)?;
            starts::apply(&mut self, changes, outcomes)?;
            rest = (more_changes, more_outcomes);
        }
        if is_writing {
            let end = self.end();
            self.session.batch(&end)?;
        }
        Ok(outcomes)
    }

    /// Looks whether this node still owns the runs, and whether they are as they were loaded.
    fn claim(&mut self, changes: &[Change], outcomes: &mut [Outcome]) -> Result<(), StoreError> {
        let mut wanted = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            if let Change::Claim { held } = change {
                if ownership::may_claim(&self.store.ownership, *held) {
                    wanted.push((index, *held));
                } else {
                    self.store.changes.recheck(held.key.id);
                    outcomes[index] = Outcome::Refused(StoreError::StaleEpoch);
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = wanted.iter().map(|(_, held)| held.key.id.get()).collect();
        let rows = self.session.query(
            "SELECT t.id, t.state, t.due, p.epoch FROM {schema}.timers t
            LEFT JOIN {schema}.partitions p
                ON p.id = t.partition AND p.owner = $2 AND p.lease_until > clock_timestamp()
            WHERE t.id = ANY($1)",
            &[&ids, &self.store.node],
        )?;
        let mut stored = BTreeMap::new();
        for row in &rows {
            let state: (i16, i64, Option<i64>) = (column(row, 1)?, column(row, 2)?, column(row, 3)?);
            stored.insert(column::<i64>(row, 0)?, state);
        }
        for (index, held) in wanted {
            let found = stored.get(&held.key.id.get());
            if let Some((state, due, epoch)) = found {
                let refused = self.refusal(held, *state, *due, *epoch);
                outcomes[index] = refused.unwrap_or(Outcome::Done(None));
            }
        }
        Ok(())
    }

    /// Returns why a stored timer is not the run that the engine has loaded.
    pub(super) fn refusal(
        &mut self,
        held: Held,
        state: i16,
        due: i64,
        epoch: Option<i64>,
    ) -> Option<Outcome> {
        let is_stale = epoch != Some(held.epoch);
        if !is_stale && state == 0 && due == held.key.due {
            return None;
        }
        // Another node has moved it, the answer to an earlier commit was lost, or the lease was over
        // for a short while. The engine does not have the present state of the timer.
        self.store.changes.recheck(held.key.id);
        Some(if is_stale { Outcome::Refused(StoreError::StaleEpoch) } else { Outcome::Missing })
    }

    pub(super) fn count(&mut self, topic: i32, partition: i32, pending: i64, dead: i64) {
        let counts = self.counts.entry((topic, partition)).or_default();
        counts.0 += pending;
        counts.1 += dead;
    }

    /// Returns the statements that update the counts and commit. They have numbers only.
    fn end(&self) -> String {
        let mut values = String::new();
        for ((topic, partition), (pending, dead)) in &self.counts {
            if (*pending, *dead) != (0, 0) {
                let comma = if values.is_empty() { "" } else { ", " };
                // Writing to a string does not fail.
                let _ = write!(values, "{comma}({topic}, {partition}, {pending}, {dead})");
            }
        }
        if values.is_empty() {
            return "COMMIT".to_owned();
        }
        format!(
            "INSERT INTO {{schema}}.counts AS c (topic, partition, pending, dead) VALUES {values}
            ON CONFLICT (topic, partition) DO UPDATE
            SET pending = c.pending + excluded.pending, dead = c.dead + excluded.dead;
            COMMIT"
        )
    }
}

/// Returns how many of the first changes are independent, so that those of one kind can be made
/// together: no two of one timer, and no command together with a start that has a key.
fn independent(changes: &[Change]) -> usize {
    let mut ids = BTreeSet::new();
    let (mut has_command, mut has_key) = (false, false);
    let depends = |change: &Change| {
        let id = match change {
            Change::Start(timer) => {
                has_key |= timer.idempotency_key.is_some();
                None
            }
            Change::Cancel(id) | Change::Move { id, .. } => {
                has_command = true;
                Some(*id)
            }
            other => held_of(other).map(|held| held.key.id),
        };
        (has_command && has_key) || id.is_some_and(|id: TimerId| !ids.insert(id))
    };
    // The first one depends on nothing.
    changes.iter().position(depends).unwrap_or(changes.len()).max(1)
}

/// Returns the run that a change is about.
pub(super) fn held_of(change: &Change) -> Option<Held> {
    match change {
        Change::End { held, .. }
        | Change::Retry { held, .. }
        | Change::Bury { held, .. }
        | Change::SkipTo { held, .. }
        | Change::Claim { held } => Some(*held),
        Change::Start(_) | Change::Cancel(_) | Change::Move { .. } => None,
    }
}
