//! `OpenRuns`: the runs that have not ended.
//!
//! Invariants: `bytes` is the sum of the weights of all runs, and `deadlines` has an entry for each
//! run with a deadline. A run is changed only while it is outside.

use super::run::TimerRun;
use crate::durable::{id::TimerId, store::TimerRow};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct OpenRuns {
    runs: BTreeMap<TimerId, TimerRun>,
    bytes: usize,
    /// In nanoseconds of the loop.
    deadlines: BTreeSet<(u64, TimerId)>,
}

impl OpenRuns {
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns about how many bytes the runs take, with the payloads that their handlers have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, id: TimerId) -> Option<&TimerRun> {
        self.runs.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TimerRun> {
        self.runs.values()
    }

    pub(super) fn contains(&self, id: TimerId) -> bool {
        self.runs.contains_key(&id)
    }

    /// Adds a run of a timer without one.
    pub(super) fn insert(&mut self, run: TimerRun) {
        let id = run.row.key.id;
        self.bytes += run.weight();
        self.deadlines.extend(run.deadline.map(|deadline| (deadline, id)));
        let replaced = self.runs.insert(id, run);
        debug_assert!(replaced.is_none(), "a timer has one run");
    }

    pub(super) fn remove(&mut self, id: TimerId) -> Option<TimerRun> {
        let run = self.runs.remove(&id)?;
        self.bytes -= run.weight();
        if let Some(deadline) = run.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(run)
    }

    /// Keeps a newer state of a timer with its run.
    pub(super) fn replace(&mut self, row: TimerRow) {
        if let Some(mut run) = self.remove(row.key.id) {
            run.replaced = Some(Box::new(row));
            self.insert(run);
        }
    }

    /// Gives a run that was not handed to its handler the payload that its timer has now.
    pub(super) fn set_payload(&mut self, id: TimerId, payload: Vec<u8>) {
        if let Some(mut run) = self.remove(id) {
            run.set_payload(payload);
            self.insert(run);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = OpenRuns::default();
    }

    /// Returns when the first run without an answer has to be given up.
    pub(super) fn first_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes a run whose deadline has passed.
    pub(super) fn remove_expired(&mut self, now: u64) -> Option<TimerRun> {
        let (_, id) = *self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.remove(id)
    }
}
