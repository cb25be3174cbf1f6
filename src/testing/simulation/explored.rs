//! What an exploration has seen.

use super::{Counters, run::SeedRun};
use crate::machine::simulated::States;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What an [`Exploration`](super::Exploration) has seen.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    seeds: u64,
    events: u64,
    elapsed: Duration,
    faults: BTreeMap<&'static str, u64>,
    pairs: BTreeSet<(&'static str, &'static str)>,
    reached: Counters,
    hashes: BTreeSet<u64>,
    states: States,
}

impl Explored {
    pub(super) fn add(&mut self, run: &SeedRun) {
        self.seeds += 1;
        self.events += run.events;
        self.elapsed += run.elapsed;
        self.hashes.insert(run.hash);
        self.states.merge(&run.states);
        for (fault, count) in &run.faults {
            *self.faults.entry(fault.name()).or_default() += count;
        }
        let names = run.faults.iter().map(|(fault, _)| fault.name());
        for (n, a) in names.clone().enumerate() {
            self.pairs.extend(names.clone().take(n).map(|b| (a.min(b), a.max(b))));
        }
        for (what, count) in &run.reached {
            *self.reached.entry(what).or_default() += count;
        }
    }

    /// Returns the number of seeds that were run.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Returns the number of events of all runs, repetitions not counted.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the virtual time of all runs, repetitions not counted.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the number of different traces.
    pub fn different_runs(&self) -> usize {
        self.hashes.len()
    }

    /// Returns about how many different states channels have been in: their life cycle, how much
    /// input and output waits, and the kind of the last fault.
    pub fn states(&self) -> u64 {
        self.states.count()
    }

    /// Returns how often each fault has happened.
    pub fn faults(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.faults.iter().map(|(name, count)| (*name, *count))
    }

    /// Returns the pairs of faults that happened in one run.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.pairs.iter().copied()
    }

    /// Returns how often the programs have reached a state
    /// ([`sometimes`](super::sometimes)).
    pub fn reached(&self, what: &str) -> u64 {
        self.reached.get(what).copied().unwrap_or(0)
    }
}
