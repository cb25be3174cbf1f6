//! `LeaseWatch`: whether this node may fire.

use crate::{
    clock::nanos,
    durable::{
        backoff::Backoff,
        store::{Lease, TimerRow},
    },
};

/// When the next renewal is sent. At most one is in flight, because a second one would be answered
/// and repeated as well, and both would go on forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    Due(u64),
    InFlight {
        /// Whether another one follows at once.
        is_repeated: bool,
    },
}

/// The lease of a store that several nodes use. Times are nanoseconds of the loop.
#[derive(Debug)]
pub(super) struct LeaseWatch {
    partitions: Vec<(u32, i64)>,
    draining: Vec<(u32, i64)>,
    valid_until: u64,
    renewal: Renewal,
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
            renewal: Renewal::Due(0),
            is_uncertain: false,
            backoff: Backoff::default(),
        }
    }

    /// Returns whether the lease is valid. Called before runs begin and fire: a program that was
    /// stopped does not notice otherwise that its lease is over.
    pub(super) fn is_valid(&self, now: u64) -> bool {
        now < self.valid_until
    }

    /// Returns the end of the lease.
    pub(super) fn valid_until(&self) -> u64 {
        self.valid_until
    }

    /// Returns whether a timer belongs to this node according to the last renewal.
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
        let is_time = self.renew_at().is_some_and(|at| at <= now);
        if is_time {
            self.renewal = Renewal::InFlight { is_repeated: false };
        }
        is_time
    }

    /// Makes a renewal follow at once, for example because there is more to learn from it. If one
    /// is in flight, the next one follows its answer.
    pub(super) fn renew_now(&mut self, now: u64) {
        self.renewal = match self.renewal {
            Renewal::Due(_) => Renewal::Due(now),
            Renewal::InFlight { .. } => Renewal::InFlight { is_repeated: true },
        };
    }

    /// Returns when to renew. `None` while a renewal is in flight.
    pub(super) fn renew_at(&self) -> Option<u64> {
        match self.renewal {
            Renewal::Due(at) => Some(at),
            Renewal::InFlight { .. } => None,
        }
    }

    /// Takes the answer of the store. Returns whether the timers have to be loaded again: this node
    /// may own other partitions than before, or the store was replaced.
    pub(super) fn renewed(&mut self, asked: u64, now: u64, lease: Option<Lease>) -> bool {
        let is_repeated = matches!(self.renewal, Renewal::InFlight { is_repeated: true });
        let Some(lease) = lease else {
            self.renewal = Renewal::Due(now.saturating_add(nanos(self.backoff.failed())));
            self.is_uncertain = true;
            return false;
        };
        self.backoff.succeeded();
        self.valid_until = asked.saturating_add(nanos(lease.valid_for));
        let pause = if is_repeated { 0 } else { nanos(lease.renew_after) };
        self.renewal = Renewal::Due(asked.saturating_add(pause).max(now));
        let was_uncertain = std::mem::take(&mut self.is_uncertain);
        let is_other = was_uncertain || lease.needs_reload || lease.partitions != self.partitions;
        self.partitions = lease.partitions;
        self.draining = lease.draining;
        is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn lease() -> Lease {
        Lease {
            partitions: Vec::new(),
            draining: Vec::new(),
            suspects: Vec::new(),
            needs_reload: false,
            valid_for: Duration::from_nanos(30),
            renew_after: Duration::from_nanos(10),
        }
    }

    /// A node that closes amid a renewal asks for one more. Two renewals in flight would never end.
    #[test]
    fn a_renewal_that_is_wanted_at_once_follows_the_one_in_flight() {
        let mut watch = LeaseWatch::new();
        assert!(watch.start_renewal(1));
        watch.renew_now(2);
        assert_eq!(watch.renew_at(), None);
        assert!(!watch.start_renewal(3));
        watch.renewed(1, 4, Some(lease()));
        assert!(watch.start_renewal(4), "the second one is due at once");
        watch.renewed(4, 5, Some(lease()));
        assert_eq!(watch.renew_at(), Some(14));
    }

    /// The server is not asked again at once if it does not answer.
    #[test]
    fn a_failed_renewal_is_repeated_after_a_pause() {
        let mut watch = LeaseWatch::new();
        assert!(watch.start_renewal(1));
        watch.renew_now(2);
        watch.renewed(1, 4, None);
        assert!(watch.renew_at().is_some_and(|at| at > 1_000_000));
    }
}
