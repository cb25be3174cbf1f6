//! `Watched`: a store that records its leases and the changes of runs, for the oracle.
//!
//! Programs see neither partitions nor epochs. Without them, a run that another node has taken over
//! and a run that is repeated without a reason look alike.

use super::{
    ledger::{Claim, Traffic},
    oracle::Event,
};
use netwheel::{
    durable::{
        StoreError, TimerFilter, TimerInfo, TimerStore,
        store::{
            BackupWork, Change, ClockReading, DeadLetters, DueKey, Effect, Held, Lease, LoadRange, Loaded,
            Maintenance, Outcome, Starter, TimerRow, TopicCounts,
        },
    },
    testing::simulation::Journal,
};
use std::{collections::BTreeSet, path::Path};

pub(super) struct Watched<S> {
    store: S,
    life: u64,
    events: Journal<Event>,
}

impl<S: TimerStore> Watched<S> {
    pub(super) fn new(store: S, life: u64, events: Journal<Event>) -> Self {
        Watched { store, life, events }
    }

    fn claim(&self, held: Held) -> Claim {
        Claim {
            life: self.life,
            id: held.key.id.get(),
            due: held.key.due,
            partition: held.partition,
            epoch: held.epoch,
        }
    }

    fn record(&self, traffic: Traffic) {
        self.events.push(Event::Stored(traffic));
    }

    /// Returns the run that a change is about, whether the change allows to call its handler, and
    /// whether it ends the run.
    fn asked(&self, change: &Change) -> Option<(Claim, bool, bool)> {
        let (held, is_claim, is_end) = match change {
            Change::Claim { held } | Change::Begin { held, .. } => (held, true, false),
            Change::End { held, .. } => (held, false, true),
            Change::Retry { held, .. } | Change::DeadLetter { held, .. } | Change::SkipTo { held, .. } => {
                (held, false, false)
            }
            _ => return None,
        };
        Some((self.claim(*held), is_claim, is_end))
    }
}

impl<S: TimerStore> TimerStore for Watched<S> {
    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError> {
        let asked: Vec<_> = changes.iter().map(|change| self.asked(change)).collect();
        for (claim, _, is_end) in asked.iter().flatten() {
            self.record(Traffic::Asked { claim: *claim, is_end: *is_end });
        }
        let outcomes = self.store.commit(changes, now)?;
        for (asked, outcome) in asked.into_iter().zip(&outcomes) {
            if let (Some((claim, is_claim, is_end)), Outcome::Done(_)) = (asked, outcome) {
                self.record(Traffic::Made { claim, is_claim, is_end });
            }
        }
        Ok(outcomes)
    }

    fn renew(&mut self, busy: &BTreeSet<u32>) -> Result<Option<Lease>, StoreError> {
        let lease = self.store.renew(busy)?;
        if let Some(lease) = &lease {
            let owned = lease.partitions.iter().chain(&lease.draining).copied().collect();
            self.record(Traffic::Leased { life: self.life, owned });
        }
        Ok(lease)
    }

    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        self.store.attach(topics)
    }

    fn load(&mut self, range: LoadRange) -> Result<Loaded, StoreError> {
        self.store.load(range)
    }

    fn far_periodic(&mut self, after: DueKey, limit: usize) -> Result<Vec<TimerRow>, StoreError> {
        self.store.far_periodic(after, limit)
    }

    fn list(&mut self, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
        self.store.list(filter)
    }

    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError> {
        self.store.counts()
    }

    fn set_paused(&mut self, topic: &str, is_paused: bool) -> Result<bool, StoreError> {
        self.store.set_paused(topic, is_paused)
    }

    fn remove_dead(&mut self, letters: &DeadLetters, now: i64) -> Result<u64, StoreError> {
        self.store.remove_dead(letters, now)
    }

    fn retry_dead(
        &mut self,
        letters: &DeadLetters,
        dues: &[i64],
    ) -> Result<Vec<Option<TimerRow>>, StoreError> {
        self.store.retry_dead(letters, dues)
    }

    fn transaction(&mut self, work: &mut Effect) -> Result<(), StoreError> {
        self.store.transaction(work)
    }

    fn backup(&mut self, path: &Path) -> Result<BackupWork, StoreError> {
        self.store.backup(path)
    }

    fn maintain(&mut self) -> Result<Maintenance, StoreError> {
        self.store.maintain()
    }

    fn was_interrupted(&self) -> bool {
        self.store.was_interrupted()
    }

    fn needs_claims(&self) -> bool {
        self.store.needs_claims()
    }

    fn has_other_writers(&self) -> bool {
        self.store.has_other_writers()
    }

    fn starter(&self) -> Option<Starter> {
        self.store.starter()
    }

    fn clock(&mut self) -> Option<ClockReading> {
        self.store.clock()
    }

    fn drain(&mut self) {
        self.store.drain();
    }

    fn changed_by_others(&mut self, until: i64, max_bytes: usize) -> Result<Loaded, StoreError> {
        self.store.changed_by_others(until, max_bytes)
    }

    fn release(&mut self) -> Result<(), StoreError> {
        self.store.release()
    }
}
