//! The engine's part of leases, for stores that several nodes share.

use super::{Engine, Now, message::EngineStep};
use crate::durable::store::{Lease, Loaded, TimerRow};

impl Engine {
    /// Requests a renewal of the lease if one is due. The request covers the whole loaded range, so
    /// that the answer contains the changes of other nodes in it.
    pub(super) fn renew(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        let until = self.loaded_range_end(now);
        if let Some(lease) = &mut self.lease
            && lease.start_renewal(now.monotonic)
        {
            let busy = self.runs.iter().filter(|run| self.has_ended(run)).map(|run| run.row.partition);
            steps.push(EngineStep::Renew { asked: now.monotonic, until, busy: busy.collect() });
        }
    }

    /// Requests that partitions without open runs are given back, before this node stops.
    pub(super) fn drain(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        if let Some(lease) = &mut self.lease {
            steps.push(EngineStep::Drain);
            lease.renew_now(now.monotonic);
        }
    }

    /// Applies the answer to a renewal. Loads everything again if the partitions have changed.
    pub(super) fn renewed(&mut self, asked: u64, lease: Option<Lease>, changed: Loaded, now: Now) {
        let Some(watch) = &mut self.lease else { return };
        if let Some(lease) = &lease {
            self.suspects.set_partitions(&lease.suspects, now.wall);
        }
        let is_other = watch.renewed(asked, now.monotonic, lease);
        if !changed.is_complete {
            watch.renew_now(now.monotonic);
        }
        if is_other {
            self.window.clear();
            self.start_survey();
        }
        changed.rows.into_iter().for_each(|row| self.insert(row));
    }

    /// Returns whether this node may fire timers now.
    pub(super) fn may_fire(&self, now: Now) -> bool {
        !self.limits.is_paused && self.lease.as_ref().is_none_or(|lease| lease.is_valid(now.monotonic))
    }

    /// Returns whether this node owns the partition of a timer.
    pub(super) fn is_own(&self, row: &TimerRow) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.owns(row))
    }
}
