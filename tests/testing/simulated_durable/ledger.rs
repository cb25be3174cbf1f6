//! What the stores of all nodes have said of leases, claims and ends, and the rules about them.

use super::oracle::{Id, Run};
use std::collections::{BTreeMap, BTreeSet};

/// A run as a node holds it, in a change that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) life: u64,
    pub(super) id: Id,
    pub(super) due: i64,
    pub(super) partition: u32,
    pub(super) epoch: i64,
}

/// What passes between the engine of a node and its store.
#[derive(Debug, Clone)]
pub(super) enum Traffic {
    /// A lease was renewed. The node owns these partitions, under these epochs.
    Leased { life: u64, owned: BTreeMap<u32, i64> },
    /// A change of a run is asked for, which may be its end.
    Asked { claim: Claim, is_end: bool },
    /// The change was made.
    Made { claim: Claim, is_claim: bool, is_end: bool },
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// What each life owned after its last renewal.
    owned: BTreeMap<u64, BTreeMap<u32, i64>>,
    /// The highest epoch of each partition that a node received.
    epochs: BTreeMap<u32, i64>,
    /// Changes that were asked for when their node did not own the run any more.
    stale: BTreeSet<Claim>,
    /// Runs for which a claim was asked, and that have not begun.
    asked: BTreeSet<(u64, Id)>,
    /// Claims that no run has used.
    claims: BTreeMap<(u64, Id), Claim>,
    ends_asked: BTreeSet<Id>,
    ends: BTreeSet<(u64, Id)>,
}

impl Ledger {
    pub(super) fn take(&mut self, traffic: &Traffic) -> Result<(), String> {
        match traffic {
            Traffic::Leased { life, owned } => {
                for (partition, epoch) in owned {
                    let highest = self.epochs.entry(*partition).or_default();
                    *highest = (*highest).max(*epoch);
                }
                self.owned.insert(*life, owned.clone());
            }
            Traffic::Asked { claim, is_end } => {
                if self.is_stale(claim) || self.is_given_back(claim) {
                    self.stale.insert(*claim);
                } else {
                    self.stale.remove(claim);
                }
                if *is_end {
                    self.ends_asked.insert(claim.id);
                } else {
                    self.asked.insert((claim.life, claim.id));
                }
            }
            Traffic::Made { claim, is_claim, is_end } => {
                if self.stale.contains(claim) {
                    return Err(format!("a node has changed a run that it does not own: {claim:?}"));
                }
                if *is_claim {
                    self.claims.insert((claim.life, claim.id), *claim);
                }
                if *is_end {
                    self.ends.insert((claim.life, claim.id));
                }
            }
        }
        Ok(())
    }

    /// Returns whether another node owns the partition under a later epoch.
    pub(super) fn is_stale(&self, claim: &Claim) -> bool {
        self.epochs.get(&claim.partition).is_some_and(|highest| claim.epoch < *highest)
    }

    /// Returns whether the node was notified that it does not own the partition any more.
    fn is_given_back(&self, claim: &Claim) -> bool {
        self.owned.get(&claim.life).is_some_and(|owned| owned.get(&claim.partition) != Some(&claim.epoch))
    }

    /// Returns the claim of a run, which serves for one call of the handler.
    pub(super) fn use_claim(&mut self, run: &Run) -> Option<Claim> {
        self.asked.remove(&(run.life, run.id));
        self.claims.remove(&(run.life, run.id))
    }

    /// Returns whether a node may have claimed a run of the timer that has not begun.
    pub(super) fn may_be_claimed(&self, id: Id) -> bool {
        self.asked.iter().any(|(_, asked)| *asked == id)
    }

    /// Returns whether the store has reported the end of a run to the life that started it.
    pub(super) fn has_ended(&self, run: &Run) -> bool {
        self.ends.contains(&(run.life, run.id))
    }

    /// Returns whether a timer that runs at most once has to run: no node has asked for its end, or
    /// the store has confirmed the end to a node that is alive.
    pub(super) fn must_run(&self, id: Id, alive: &BTreeSet<u64>) -> bool {
        !self.ends_asked.contains(&id) || alive.iter().any(|life| self.ends.contains(&(*life, id)))
    }
}
