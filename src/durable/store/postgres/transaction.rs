//! `Transaction`: the state of a transaction while its changes are made.

use super::{PostgresStore, counts, session::PostgresSession};
use crate::durable::store::{change::Outcome, error::StoreError, row::Held};
use std::{collections::BTreeMap, fmt::Write, time::Instant};

/// A transaction runs effects for this part of a lease. Then it ends, so that renewals do not wait
/// for too long.
const PART_OF_LEASE: u32 = 6;

pub(super) struct Transaction<'a> {
    pub(super) store: &'a mut PostgresStore,
    pub(super) session: &'a mut PostgresSession,
    pub(super) now: i64,
    begun: Instant,
    has_effects: bool,
    /// The changes of pending timers and dead letters, by topic and partition.
    counts: BTreeMap<(i32, i32), (i64, i64)>,
}

impl<'a> Transaction<'a> {
    #[allow(clippy::disallowed_methods, reason = "how long the effects take is real time")]
    pub(super) fn new(store: &'a mut PostgresStore, session: &'a mut PostgresSession, now: i64) -> Self {
        let begun = Instant::now();
        Transaction { store, session, now, begun, has_effects: false, counts: BTreeMap::new() }
    }

    /// Returns whether there is time for an effect. Always true for the first one.
    pub(super) fn may_run_effect(&mut self) -> bool {
        let limit = self.store.settings.lease / PART_OF_LEASE;
        !std::mem::replace(&mut self.has_effects, true) || self.begun.elapsed() < limit
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
        // Another node has moved it, the answer to an earlier commit was lost, or the lease had
        // ended for a short while. The engine does not have the current state of the timer.
        self.store.changes.recheck(held.key.id);
        Some(if is_stale { Outcome::Refused(StoreError::StaleEpoch) } else { Outcome::Missing })
    }

    pub(super) fn count(&mut self, topic: i32, partition: i32, pending: i64, dead: i64) {
        let counts = self.counts.entry((topic, partition)).or_default();
        counts.0 += pending;
        counts.1 += dead;
    }

    /// Returns the statements that update the counts and commit. They have numbers only.
    pub(super) fn end(&self) -> String {
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
        format!("{}; COMMIT", counts::add(&values))
    }
}
