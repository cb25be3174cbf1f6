//! Faults that strike nodes and links from outside.

use super::{World, queue::TimedAction};
use crate::machine::simulated::fault::Fault;

/// The usual interval of strikes, in nanoseconds.
const INTERVAL: u64 = 200_000_000;

/// The times of strikes. Their random numbers are a separate stream, so the times do not depend on
/// the programs.
pub(super) struct Strikes {
    random: fastrand::Rng,
    next: u64,
}

impl Strikes {
    pub(super) fn new(random: fastrand::Rng) -> Self {
        Strikes { random, next: 0 }
    }
}

impl World {
    /// Schedules the next strike.
    pub(crate) fn schedule_strike(&mut self) {
        let after = self.strikes.random.u64(INTERVAL / 10..2 * INTERVAL);
        self.strikes.next = self.now.max(self.strikes.next + after);
        self.schedule(self.strikes.next, TimedAction::Strike);
    }

    /// Draws whether the next poll returns without a reason. A spin makes the following ones do so,
    /// too.
    pub(crate) fn returns_early(&mut self) -> bool {
        if self.fails(Fault::PollSpins) {
            self.faults.spins_left = 600;
        }
        if self.faults.spins_left > 0 {
            self.faults.spins_left -= 1;
            return true;
        }
        self.fails(Fault::PollReturnsEarly)
    }

    /// Lets a turn take long, if that is drawn.
    pub(crate) fn maybe_slow_turn(&mut self, node: usize) {
        if self.fails(Fault::SlowTurn) {
            let time = self.faults.size(Fault::SlowTurn, 1_000_000..50_000_000);
            self.stall(node, time);
        }
    }

    /// Draws the faults of links and of nodes that go on.
    pub(crate) fn strike_links(&mut self) {
        let nodes = self.nodes.len() as u64;
        for fault in [Fault::LinkCut, Fault::LinkClogged] {
            if self.fails(fault) {
                let from = self.faults.size(fault, 0..nodes) as usize;
                let to = self.faults.size(fault, 0..nodes) as usize;
                let time = self.faults.size(fault, 10_000_000..20_000_000_000);
                match fault {
                    Fault::LinkCut => {
                        self.cut_link(from, to, time);
                        // A cut in one direction only is rarer, and worse.
                        if self.faults.size(fault, 0..4) > 0 {
                            self.cut_link(to, from, time);
                        }
                    }
                    _ => self.clog_link(from, to, time),
                }
            }
        }
        if let Some(node) = self.struck(Fault::ConnectionReset) {
            let choice = self.faults.size(Fault::ConnectionReset, 0..u64::MAX);
            self.reset_any(node, choice);
        }
        if let Some(node) = self.struck(Fault::NodeStalls) {
            let time = self.faults.size(Fault::NodeStalls, 1_000_000..5_000_000_000);
            // A node runs between two stalls, however often they strike.
            if self.nodes[node].stalled_until <= self.now {
                self.stall(node, time);
            }
        }
        if let Some(node) = self.struck(Fault::ClockJumps).filter(|node| self.may_shift_clock(*node)) {
            let by = self.faults.size(Fault::ClockJumps, 1_000_000..120_000_000_000);
            self.jump_clock(node, by);
        }
        if let Some(node) = self.struck(Fault::ClockDrifts).filter(|node| self.may_shift_clock(*node)) {
            let faster = self.faults.size(Fault::ClockDrifts, 0..400);
            self.drift_clock(node, faster);
        }
        if let Some(node) = self.struck(Fault::WallTimeSteps).filter(|node| self.may_shift_clock(*node)) {
            let by = self.faults.size(Fault::WallTimeSteps, 0..7_200_000_000_000) as i64;
            self.shift_wall_time(node, by - 3_600_000_000_000);
        }
        if let Some(node) = self.struck(Fault::OutOfDescriptors) {
            let time = self.faults.size(Fault::OutOfDescriptors, 1_000_000..3_000_000_000);
            self.exhaust_descriptors(node, time);
        }
        if let Some(node) = self.struck(Fault::DiskFull) {
            let time = self.faults.size(Fault::DiskFull, 1_000_000..10_000_000_000);
            let until = self.now.saturating_add(time);
            let full_until = &mut self.nodes[node].disk_full_until;
            *full_until = until.max(*full_until);
        }
    }

    /// Draws whether a fault strikes now, and which node it strikes.
    pub(crate) fn struck(&mut self, fault: Fault) -> Option<usize> {
        let nodes = self.nodes.len() as u64;
        self.fails(fault).then(|| self.faults.size(fault, 0..nodes) as usize)
    }

    fn may_shift_clock(&self, node: usize) -> bool {
        !self.nodes[node].has_steady_clock
    }
}
