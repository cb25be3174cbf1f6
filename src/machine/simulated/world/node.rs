//! Nodes: their addresses, clocks and lives.

use super::World;
use crate::machine::simulated::trace::Happening;
use std::net::IpAddr;

/// A node: its addresses and its clock.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// The program runs.
    pub(crate) is_up: bool,
    /// The kernel runs. It outlives a program that is killed.
    pub(crate) has_power: bool,
    pub(crate) life: u32,
    /// The number of the restart that is planned. Restarts with other numbers do not happen.
    pub(super) planned_restart: u32,
    /// How far the clock has jumped ahead, in nanoseconds.
    pub(super) ahead: u64,
    /// How much faster the clock runs than that of the world, in millionths, and since when.
    pub(super) drift: u64,
    pub(super) drifts_since: u64,
    /// How far the time of day is shifted, in nanoseconds.
    pub(crate) wall_shift: i64,
    /// The node does not run before this time.
    pub(crate) stalled_until: u64,
    /// Accepting and opening sockets fails until this time.
    pub(super) out_of_descriptors_until: u64,
    /// Faults leave the clock as it is.
    pub(crate) has_steady_clock: bool,
    /// Writes to the disk fail until this time.
    #[cfg_attr(not(feature = "durable"), allow(dead_code, reason = "only timers have disks"))]
    pub(super) disk_full_until: u64,
    /// How often the node has lost its power.
    #[cfg_attr(not(feature = "durable"), allow(dead_code, reason = "only disks ask"))]
    pub(crate) power_losses: u64,
    pub(super) next_port: u16,
}

impl Node {
    /// Returns whether a kill or a loss of power changes anything.
    pub(crate) fn can_end(&self, loses_power: bool) -> bool {
        self.is_up || (loses_power && self.has_power)
    }

    /// Converts a time of the world to that of the node's clock.
    pub(crate) fn local(&self, time: u64) -> u64 {
        let drift = time.saturating_sub(self.drifts_since) / 1_000_000 * self.drift;
        time.saturating_add(self.ahead).saturating_add(drift)
    }
}

impl World {
    pub(crate) fn add_node(&mut self, name: &str, address: IpAddr) -> usize {
        self.nodes.push(Node {
            name: name.to_owned(),
            address,
            is_up: true,
            has_power: true,
            life: 0,
            planned_restart: 0,
            ahead: 0,
            drift: 0,
            drifts_since: 0,
            wall_shift: 0,
            stalled_until: 0,
            out_of_descriptors_until: 0,
            has_steady_clock: false,
            disk_full_until: 0,
            power_losses: 0,
            next_port: 32_768,
        });
        self.nodes.len() - 1
    }

    pub(in crate::machine::simulated) fn resolve(&self, host: &str) -> Option<IpAddr> {
        if host == "localhost" {
            return Some(IpAddr::from([127, 0, 0, 1]));
        }
        self.nodes.iter().find(|node| node.name == host).map(|node| node.address)
    }

    /// Ends the process of a node. Its sockets vanish if the machine lost its power, without a
    /// packet to their peers. Otherwise its kernel closes them, and answers later packets.
    pub(crate) fn kill_node(&mut self, node: usize, loses_power: bool) {
        self.note(Happening::Killed, node, u64::from(loses_power), 0);
        let sockets: Vec<_> = self.sockets.of_node(node).collect();
        for socket in sockets {
            if loses_power { self.sockets.remove(socket) } else { self.close(socket) }
        }
        let state = &mut self.nodes[node];
        // The power may be lost after the process was killed.
        state.life += u32::from(state.is_up);
        state.is_up = false;
        state.has_power &= !loses_power;
        state.power_losses += u64::from(loses_power);
    }

    pub(crate) fn restart_node(&mut self, node: usize) {
        self.note(Happening::Restarted, node, 0, 0);
        (self.nodes[node].is_up, self.nodes[node].has_power) = (true, true);
    }

    pub(crate) fn stall(&mut self, node: usize, time: u64) {
        self.note(Happening::Stalled, node, time, 0);
        let until = self.now.saturating_add(time);
        // A shorter stall does not end a longer one.
        let stalled_until = &mut self.nodes[node].stalled_until;
        *stalled_until = until.max(*stalled_until);
    }

    pub(crate) fn jump_clock(&mut self, node: usize, by: u64) {
        self.note(Happening::ClockJumped, node, by, 0);
        self.nodes[node].ahead = self.nodes[node].ahead.saturating_add(by);
        // A timer of the kernel follows the clock, so sleeping loops wake up.
        for index in 0..self.loops.len() {
            if self.loops[index].node == node {
                self.wake_sleeping_loop(index);
            }
        }
    }

    /// Sets by how much a clock is faster than the world's from now on: `faster` millionths.
    pub(crate) fn drift_clock(&mut self, node: usize, faster: u64) {
        self.note(Happening::ClockDrifts, node, faster, 0);
        let now = self.now;
        let state = &mut self.nodes[node];
        // The clock continues from where it is.
        state.ahead = state.local(now).saturating_sub(now);
        (state.drift, state.drifts_since) = (faster, now);
    }

    pub(crate) fn shift_wall_time(&mut self, node: usize, by: i64) {
        self.note(Happening::WallTimeShifted, node, by.unsigned_abs(), u64::from(by < 0));
        self.nodes[node].wall_shift = self.nodes[node].wall_shift.saturating_add(by);
    }

    /// Ends the faults of all disks.
    pub(crate) fn heal_disks(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.disk_full_until = 0);
    }

    /// Leaves no descriptor for another socket for a time, or ends that (zero). A shorter time does
    /// not end a longer one.
    pub(crate) fn exhaust_descriptors(&mut self, node: usize, time: u64) {
        self.note(Happening::OutOfDescriptors, node, time, 0);
        let until = self.now.saturating_add(time);
        let exhausted_until = &mut self.nodes[node].out_of_descriptors_until;
        *exhausted_until = if time == 0 { 0 } else { until.max(*exhausted_until) };
    }
}
