//! Links between nodes: latency, rate, cuts and clogs.
//!
//! TCP hides the loss of segments, so a loss is a delay here. A segment that meets a cut link is
//! sent again later, with growing pauses, as TCP does.

use super::World;
use crate::machine::simulated::trace::Happening;
use std::{collections::BTreeMap, time::Duration};

/// The first pause before a segment is sent again, in nanoseconds.
const FIRST_RETRANSMISSION: u64 = 200_000_000;

/// The longest pause, in nanoseconds.
const LAST_RETRANSMISSION: u64 = 30_000_000_000;

/// The length of a message without a socket, in bytes.
#[cfg(feature = "durable")]
const MESSAGE: usize = 500;

/// The longest delay, in nanoseconds: about 146 years. Added to the time of a simulation, it does
/// not overflow.
const LONGEST: u64 = 1 << 62;

/// The latency between two sockets of one node, in nanoseconds.
const LOOPBACK: u64 = 10_000;

/// How links between nodes behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkSettings {
    pub(crate) latency: Duration,
    /// A random addition to the latency, up to this.
    pub(crate) jitter: Duration,
    /// Bytes per second of a link in one direction.
    pub(crate) rate: Option<u64>,
    pub(crate) send_buffer: usize,
    pub(crate) receive_buffer: usize,
}

impl Default for LinkSettings {
    fn default() -> Self {
        LinkSettings {
            latency: Duration::from_micros(500),
            jitter: Duration::from_micros(200),
            rate: None,
            send_buffer: 256 * 1024,
            receive_buffer: 256 * 1024,
        }
    }
}

/// One direction between two nodes.
#[derive(Default)]
struct Direction {
    cut_until: u64,
    clogged_until: u64,
    /// When the last byte that was sent so far has left.
    busy_until: u64,
}

pub(super) struct LinkTable {
    pub(super) settings: LinkSettings,
    directions: BTreeMap<(usize, usize), Direction>,
    random: fastrand::Rng,
}

impl LinkTable {
    pub(super) fn new(random: fastrand::Rng) -> Self {
        LinkTable { settings: LinkSettings::default(), directions: BTreeMap::new(), random }
    }

    /// Returns the time that a packet of `bytes` takes from one node to another if it is sent now.
    pub(super) fn delay(&mut self, from: usize, to: usize, bytes: usize, now: u64) -> u64 {
        if from == to {
            return LOOPBACK;
        }
        let LinkSettings { latency, jitter, rate, .. } = self.settings;
        let jitter = match crate::clock::nanos(jitter) {
            0 => 0,
            jitter => self.random.u64(..=jitter),
        };
        let delay = crate::clock::nanos(latency) + jitter;
        if rate.is_none() && self.directions.is_empty() {
            return delay;
        }
        let direction = self.directions.entry((from, to)).or_default();
        let begin = now.max(direction.busy_until).max(direction.clogged_until);
        let sending = rate.map_or(0, |rate| (bytes as u64).saturating_mul(1_000_000_000) / rate.max(1));
        direction.busy_until = begin.saturating_add(sending);
        if rate.is_none() && direction.clogged_until <= now {
            direction.busy_until = 0;
        }
        begin.saturating_add(sending).saturating_add(delay).saturating_sub(now).min(LONGEST)
    }

    /// Returns whether packets between the nodes are lost now.
    pub(super) fn is_cut(&self, from: usize, to: usize, now: u64) -> bool {
        from != to
            && !self.directions.is_empty()
            && self.directions.get(&(from, to)).is_some_and(|direction| now < direction.cut_until)
    }
}

/// Returns the pause before the attempt with this number.
pub(in crate::machine::simulated) fn retransmission(attempt: u32) -> u64 {
    FIRST_RETRANSMISSION.saturating_mul(1 << attempt.min(20)).min(LAST_RETRANSMISSION)
}

impl World {
    /// Cuts the link in one direction for a time, or heals it (zero). A shorter cut does not end a
    /// longer one.
    pub(crate) fn cut_link(&mut self, from: usize, to: usize, time: u64) {
        self.note(if time > 0 { Happening::LinkCut } else { Happening::LinkHealed }, from, to as u64, time);
        let until = self.now().saturating_add(time);
        let cut_until = &mut self.links.directions.entry((from, to)).or_default().cut_until;
        *cut_until = if time == 0 { 0 } else { until.max(*cut_until) };
    }

    /// Holds all packets in one direction back for a time. A shorter clog does not end a longer
    /// one.
    pub(crate) fn clog_link(&mut self, from: usize, to: usize, time: u64) {
        self.note(Happening::LinkClogged, from, to as u64, time);
        let until = self.now().saturating_add(time);
        let clogged_until = &mut self.links.directions.entry((from, to)).or_default().clogged_until;
        *clogged_until = until.max(*clogged_until);
    }

    /// Returns the time that a small message takes if it is sent now. `None` if it is lost.
    #[cfg(feature = "durable")]
    pub(crate) fn message_delay(&mut self, from: usize, to: usize) -> Option<u64> {
        let now = self.now();
        let arrives = !self.links.is_cut(from, to, now) && self.nodes[to].has_power;
        arrives.then(|| self.links.delay(from, to, MESSAGE, now))
    }

    /// Heals all links. Packets that a clog holds back already still arrive when it would have
    /// ended.
    pub(crate) fn heal_links(&mut self) {
        for direction in self.links.directions.values_mut() {
            *direction = Direction::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::simulated::faults::FaultSource;

    const SECOND: u64 = 1_000_000_000;

    fn world() -> World {
        let mut world = World::new(1, FaultSource::default());
        for last in [1, 2] {
            world.add_node("node", [10, 0, 0, last].into());
        }
        world.set_link(LinkSettings { jitter: Duration::ZERO, ..LinkSettings::default() });
        world
    }

    fn delay(world: &mut World, bytes: usize) -> u64 {
        let now = world.now();
        world.links.delay(0, 1, bytes, now)
    }

    #[test]
    fn a_healed_link_holds_no_packet_back() {
        for rate in [None, Some(1_000_000)] {
            let mut world = world();
            world.links.settings.rate = rate;
            let calm = delay(&mut world, 0);
            world.clog_link(0, 1, 10 * SECOND);
            assert!(delay(&mut world, 1000) >= 10 * SECOND);
            world.heal_links();
            assert_eq!(delay(&mut world, 0), calm, "{rate:?}");
        }
    }

    #[test]
    fn a_shorter_cut_or_clog_does_not_end_a_longer_one() {
        let mut world = world();
        for time in [10 * SECOND, SECOND] {
            world.cut_link(0, 1, time);
            world.clog_link(0, 1, time);
        }
        assert!(world.links.is_cut(0, 1, 9 * SECOND));
        assert!(delay(&mut world, 0) >= 10 * SECOND);
        world.cut_link(0, 1, 0);
        assert!(!world.links.is_cut(0, 1, 0), "a cut of no time heals");
    }
}
