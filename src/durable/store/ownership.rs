//! `Ownership`: the partitions of this node.
//!
//! A node that owns more than its share gives the surplus back. A partition with runs that were
//! claimed and have not ended is first drained, so that no run is repeated: the node does not fire
//! its timers any more, but still ends those runs. A partition with at-most-once runs whose
//! handlers have not answered is drained too, so that no run overlaps with the next one. Draining
//! takes `drain_timeout` at most. Then the partition is given back in any case, because its other
//! timers wait. A node that is about to stop has no share and gives back all its partitions in this
//! way.

use super::{
    change::{Change, Outcome},
    error::StoreError,
    lease::Lease,
    row::Held,
};
use crate::durable::id::TimerId;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// The longest pause between two renewals.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What this node owns, as of the last renewal.
#[derive(Debug, Clone, Default)]
pub(in crate::durable::store) struct Ownership {
    /// The epoch of each partition whose timers fire here.
    active: BTreeMap<u32, i64>,
    /// Partitions that will be given back, and until when they are drained at most.
    draining: BTreeMap<u32, (i64, Instant)>,
    /// The epochs of partitions that were taken over from a node whose lease had ended.
    suspects: BTreeMap<u32, i64>,
    /// The partitions of runs that were claimed and have not ended.
    claimed: BTreeMap<TimerId, u32>,
    /// The number of starts, which spreads them over the partitions.
    starts: usize,
    /// Whether this node is about to stop.
    is_closing: bool,
}

impl Ownership {
    /// Returns the epoch under which timers of a partition are loaded.
    pub(in crate::durable::store) fn epoch(&self, partition: u32) -> Option<i64> {
        self.active.get(&partition).copied()
    }

    /// Returns the partitions whose timers fire here.
    #[cfg(feature = "durable-postgres")]
    pub(in crate::durable::store) fn active(&self) -> Vec<u32> {
        self.active.keys().copied().collect()
    }

    pub(in crate::durable::store) fn is_draining(&self, partition: u32) -> bool {
        self.draining.contains_key(&partition)
    }

    /// Returns whether a run may be claimed here.
    pub(in crate::durable::store) fn may_claim(&self, held: Held) -> bool {
        !self.is_draining(held.partition)
    }

    /// Notes a partition that this node has taken over. It is suspect if the lease of another node
    /// had ended.
    pub(in crate::durable::store) fn take_over(&mut self, partition: u32, epoch: i64, is_suspect: bool) {
        self.active.insert(partition, epoch);
        if is_suspect {
            self.suspects.insert(partition, epoch);
        }
    }

    /// Returns how many of the partitions this node may own, beside other nodes. Others do not
    /// leave a share to a node that is about to stop.
    pub(in crate::durable::store) fn share(&self, partitions: u32, others: usize) -> usize {
        if self.is_closing { 0 } else { (partitions as usize).div_ceil(others.saturating_add(1)) }
    }

    /// Returns how many partitions are to be taken over.
    pub(in crate::durable::store) fn wanted(&self, share: usize) -> usize {
        share.saturating_sub(self.active.len())
    }

    /// Returns the lease after a renewal, of a store whose leases have this length.
    pub(in crate::durable::store) fn lease(&self, length: Duration, needs_reload: bool) -> Lease {
        Lease {
            partitions: self.active.iter().map(|(partition, epoch)| (*partition, *epoch)).collect(),
            draining: self.draining.iter().map(|(id, (epoch, _))| (*id, *epoch)).collect(),
            suspects: self.suspects.iter().map(|(partition, epoch)| (*partition, *epoch)).collect(),
            needs_reload,
            valid_for: length / 2,
            renew_after: (length / 6).min(LONGEST_PAUSE),
        }
    }

    /// Makes the following renewals give partitions back.
    pub(in crate::durable::store) fn drain(&mut self) {
        self.is_closing = true;
    }

    /// Returns whether this node is about to stop.
    pub(in crate::durable::store) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Chooses the partition of a new timer: one of this node, if there is one.
    pub(in crate::durable::store) fn place(&mut self, partitions: u32) -> u32 {
        self.starts = self.starts.wrapping_add(1);
        let own = self.active.len().max(1);
        match self.active.keys().nth(self.starts % own) {
            Some(partition) => *partition,
            None => (self.starts % partitions.max(1) as usize) as u32,
        }
    }

    /// Remembers which runs are under way.
    pub(in crate::durable::store) fn committed(&mut self, changes: &[Change], outcomes: &[Outcome]) {
        for (change, outcome) in changes.iter().zip(outcomes) {
            match (change, outcome) {
                (Change::Claim { held } | Change::Begin { held, .. }, Outcome::Done(_)) => {
                    self.claimed.insert(held.key.id, held.partition);
                }
                // The engine retries a run or makes it a dead letter, whose effect failed.
                (Change::End { .. }, Outcome::Refused(StoreError::Effect(_))) => {}
                (
                    Change::End { held, .. }
                    | Change::Retry { held, .. }
                    | Change::DeadLetter { held, .. }
                    | Change::SkipTo { held, .. }
                    | Change::Begin { held, .. }
                    | Change::Claim { held },
                    _,
                ) => drop(self.claimed.remove(&held.key.id)),
                // The engine sends no command on a timer with a run. So the run was claimed and did
                // not begin, for example because the lease had ended.
                (Change::Cancel(id) | Change::Move { id, .. }, Outcome::Done(_)) => {
                    self.claimed.remove(id);
                }
                _ => {}
            }
        }
    }

    /// Applies the owned partitions of the database. `busy` are those of open at-most-once runs.
    /// Returns surplus partitions to give back now.
    pub(in crate::durable::store) fn update(
        &mut self,
        owned: BTreeMap<u32, i64>,
        share: usize,
        busy: &BTreeSet<u32>,
        drain_until: Instant,
        now: Instant,
    ) -> Vec<u32> {
        self.draining.retain(|partition, (epoch, _)| owned.get(partition) == Some(epoch));
        self.suspects.retain(|partition, epoch| owned.get(partition) == Some(epoch));
        self.claimed.retain(|_, partition| owned.contains_key(partition));
        let busy: BTreeSet<u32> = self.claimed.values().chain(busy).copied().collect();
        self.active = owned.iter().map(|(partition, epoch)| (*partition, *epoch)).collect();
        // After another node has left, the share grows, and draining stops.
        let keep = share.saturating_sub(self.active.len().saturating_sub(self.draining.len()));
        for _ in 0..keep {
            self.draining.pop_first();
        }
        self.active.retain(|partition, _| !self.draining.contains_key(partition));
        let mut surplus: Vec<u32> = self.active.keys().copied().collect();
        // Those without runs first.
        surplus.sort_by_key(|partition| busy.contains(partition));
        surplus.truncate(self.active.len().saturating_sub(share));
        for partition in surplus {
            if let Some(epoch) = self.active.remove(&partition) {
                self.draining.insert(partition, (epoch, drain_until));
            }
        }
        let is_drained = |(partition, (_, until)): (&u32, &(i64, Instant))| {
            (!busy.contains(partition) || *until <= now).then_some(*partition)
        };
        let drained: Vec<u32> = self.draining.iter().filter_map(is_drained).collect();
        for partition in &drained {
            self.draining.remove(partition);
        }
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::store::row::DueKey;

    /// A run that was claimed may not begin, because the lease had ended. Then a command comes.
    #[test]
    fn a_timer_that_is_cancelled_or_moved_after_its_claim_keeps_no_partition_busy() {
        let now = Instant::now();
        let held = Held::new(DueKey { due: 1, id: TimerId::new(5) }, 3, 1);
        let (claim, done) = (Change::Claim { held }, Outcome::Done(None));
        for command in [Change::Cancel(held.key.id), Change::Move { id: held.key.id, due: 2 }] {
            let mut ownership = Ownership::default();
            let renew = |ownership: &mut Ownership| {
                ownership.update(BTreeMap::from([(3, 1)]), 0, &BTreeSet::new(), now + LONGEST_PAUSE, now)
            };
            ownership.committed(std::slice::from_ref(&claim), std::slice::from_ref(&done));
            assert!(renew(&mut ownership).is_empty(), "the run may begin");
            ownership.committed(&[command], std::slice::from_ref(&done));
            assert_eq!(renew(&mut ownership), [3]);
        }
    }
}
