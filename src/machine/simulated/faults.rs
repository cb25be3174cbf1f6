//! Faults: which may happen, how often, and which have happened.
//!
//! The seed, the kind of a fault and the number of an opportunity decide whether the fault happens,
//! and how large it is. So leaving one fault out does not change the draws of the others. A run is
//! repeated by its seed and the list of the faults that have happened, also with other rates.

use super::{
    fault::{Fault, FaultRecord},
    mask::Mask,
    seeds::{derive, mix},
};
use std::collections::BTreeSet;

/// The most faults of a run that are kept for its report and for shrinking.
const RECORDED: usize = 100_000;

/// The faults of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultSource {
    /// Per million opportunities, by the number of the fault.
    pub(crate) rates: Vec<u32>,
    /// The faults of a run that repeats another one. They replace the rates.
    pub(crate) only: Option<Mask>,
}

impl FaultSource {
    pub(crate) fn rate(&self, fault: Fault) -> u32 {
        self.rates.get(fault as usize).copied().unwrap_or(0)
    }

    pub(crate) fn set_rate(&mut self, fault: Fault, per_million: u32) {
        if self.rates.len() < Fault::ALL.len() {
            self.rates.resize(Fault::ALL.len(), 0);
        }
        self.rates[fault as usize] = per_million;
    }

    /// Draws a subset of these faults, each with a rate of its own. Runs in which few kinds of
    /// faults happen often reach states that a mixture of all never reaches.
    pub(crate) fn subset(&self, seed: u64) -> FaultSource {
        let mut random = fastrand::Rng::with_seed(derive(seed, "subset"));
        let share = random.u32(10..=70);
        let mut drawn = self.clone();
        for rate in &mut drawn.rates {
            let factor = [1, 1, 4, 20][random.usize(..4)];
            let keep = random.u32(..100) < share;
            *rate = if keep { rate.saturating_mul(factor).min(400_000) } else { 0 };
        }
        drawn
    }
}

/// The draws of a run.
pub(crate) struct FaultState {
    kinds: Vec<Draws>,
    /// If set, exactly these faults happen, by kind and number of the opportunity.
    only: Option<BTreeSet<(Fault, u64)>>,
    /// No fault happens from this time on, in nanoseconds.
    end: u64,
    /// The first faults that have happened, at most [`RECORDED`].
    pub(crate) happened: Vec<FaultRecord>,
    last: Option<Fault>,
    /// Polls that are still to return without a reason.
    pub(super) spins_left: u32,
}

/// The draws of one kind of fault.
struct Draws {
    seed: u64,
    /// Per million opportunities.
    rate: u32,
    opportunities: u64,
    happened: u64,
    /// Draws the sizes of the last fault.
    sizes: fastrand::Rng,
}

impl FaultState {
    pub(super) fn new(seed: u64, faults: &FaultSource) -> Self {
        let draws = |fault: &Fault| {
            let seed = derive(seed, fault.name());
            let sizes = fastrand::Rng::with_seed(seed);
            Draws { seed, rate: faults.rate(*fault), opportunities: 0, happened: 0, sizes }
        };
        let kinds = Fault::ALL.iter().map(draws).collect();
        let only = faults.only.as_ref().map(|mask| mask.faults.clone());
        FaultState { kinds, only, end: u64::MAX, happened: Vec::new(), last: None, spins_left: 0 }
    }

    /// Sets how often faults happen from now on.
    pub(crate) fn set_rates(&mut self, faults: &FaultSource) {
        for (fault, draws) in Fault::ALL.iter().zip(&mut self.kinds) {
            draws.rate = faults.rate(*fault);
        }
        self.end = u64::MAX;
    }

    #[inline]
    pub(super) fn happens(&mut self, fault: Fault, at: u64) -> bool {
        let draws = &mut self.kinds[fault as usize];
        let opportunity = draws.opportunities;
        draws.opportunities += 1;
        if (draws.rate == 0 && self.only.is_none()) || at >= self.end {
            return false;
        }
        let drawn = mix(draws.seed ^ mix(opportunity));
        let happens = match &self.only {
            None => ((drawn >> 32) * 1_000_000) >> 32 < u64::from(draws.rate),
            Some(only) => only.contains(&(fault, opportunity)),
        };
        if happens {
            draws.happened += 1;
            self.last = Some(fault);
            draws.sizes = fastrand::Rng::with_seed(drawn);
            if self.happened.len() < RECORDED {
                self.happened.push(FaultRecord { at, fault, opportunity });
            }
        }
        happens
    }

    /// Uncounts the last fault of this kind, because it had nothing to act on.
    pub(crate) fn take_back(&mut self, fault: Fault) {
        let draws = &mut self.kinds[fault as usize];
        draws.happened -= 1;
        let last = (fault, draws.opportunities - 1);
        self.happened.pop_if(|record| (record.fault, record.opportunity) == last);
    }

    /// Draws the size of a fault that has just happened, for example how long it lasts.
    pub(crate) fn size(&mut self, fault: Fault, range: std::ops::Range<u64>) -> u64 {
        self.kinds[fault as usize].sizes.u64(range)
    }

    /// Returns the kind of the last fault.
    pub(super) fn last(&self) -> Option<Fault> {
        self.last
    }

    /// Ends all faults at `at`.
    pub(crate) fn end_at(&mut self, at: u64) {
        self.end = self.end.min(at);
    }

    /// Returns how often each kind of fault has happened.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        let counts = Fault::ALL.iter().zip(&self.kinds).map(|(fault, draws)| (*fault, draws.happened));
        counts.filter(|(_, happened)| *happened > 0)
    }

    /// Returns whether `happened` has all faults.
    pub(crate) fn are_recorded(&self) -> bool {
        self.kinds.iter().map(|draws| draws.happened).sum::<u64>() == self.happened.len() as u64
    }
}
