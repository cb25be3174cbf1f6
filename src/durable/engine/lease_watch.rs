//! `LeaseWatch`: whether this node may fire.

use crate::{
    clock::nanos,
    durable::{
        backoff::Backoff,
        store::{Lease, TimerRow},
    },
};

/// The lease of a store that several nodes use. Times are nanoseconds of the loop.
#[derive(Debug)]
pub(super) struct LeaseWatch {
    partitions: Vec<(u32, i64)>,
    draining: Vec<(u32, i64)>,
    valid_until: u64,
    renew_at: Option<u64>,
    /// Whether a renewal has failed since the last answer. The store may own other partitions now,
    /// and have loaded the timers of those only.
    is_uncertain: bool,
    backoff: Backoff,
}

impl LeaseWatch {
    pub(super) fn new() -> Self {
        LeaseWatch {
            partitions: Vec::new(),
            draining: Vec::new(),
            valid_until: 0,
            renew_at: Some(0),
            is_uncertain: false,
            backoff: Backoff::default(),
        }
    }

    /// Returns whether the lease is valid. Called at the instant of firing: a program that was
    /// stopped does not notice otherwise that its lease is over.
    pub(super) fn is_valid(&self, now: u64) -> bool {
        now < self.valid_until
    }

    /// Returns whether a timer belongs to this node, as far as the last renewal says.
    pub(super) fn owns(&self, row: &TimerRow) -> bool {
        self.partitions.binary_search(&(row.partition, row.epoch)).is_ok()
    }

    /// Returns whether this node may fire a timer that it has claimed.
    pub(super) fn owns_claim(&self, row: &TimerRow) -> bool {
        self.owns(row) || self.draining.binary_search(&(row.partition, row.epoch)).is_ok()
    }

    /// Returns whether it is time to renew. The caller then asks the store, and calls
    /// [`LeaseWatch::renewed`] with the answer.
    pub(super) fn start_renewal(&mut self, now: u64) -> bool {
        let is_time = self.renew_at.is_some_and(|at| at <= now);
        if is_time {
            self.renew_at = None;
        }
        is_time
    }

    /// Makes the next renewal follow at once, for example because there is more to learn from it.
    pub(super) fn renew_now(&mut self, now: u64) {
        self.renew_at = Some(now);
    }

    /// Returns when to renew.
    pub(super) fn renew_at(&self) -> Option<u64> {
        self.renew_at
    }

    /// Takes the answer of the store. Returns whether the timers have to be loaded again: this node
    /// may own other partitions than before, or the store was replaced.
    pub(super) fn renewed(&mut self, asked: u64, now: u64, lease: Option<Lease>) -> bool {
        let Some(lease) = lease else {
            self.renew_at = Some(now.saturating_add(nanos(self.backoff.failed())));
            self.is_uncertain = true;
            return false;
        };
        self.backoff.succeeded();
        self.valid_until = asked.saturating_add(nanos(lease.valid_for));
        self.renew_at = Some(asked.saturating_add(nanos(lease.renew_after)).max(now));
        let was_uncertain = std::mem::take(&mut self.is_uncertain);
        let is_other = was_uncertain || lease.needs_reload || lease.partitions != self.partitions;
        self.partitions = lease.partitions;
        self.draining = lease.draining;
        is_other
    }
}
