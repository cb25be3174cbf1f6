//! How much all channels of a loop, and of a group, may have waiting to be sent.
//!
//! Always holds: `used` is the sum of what the loop's channels have waiting, as of the last time each was looked at (after
//! each of its callbacks and flushes), datagrams among it; the group hears of it at the end of a turn. A channel may always have
//! as much as its low water mark (of datagrams one): so those whose peers keep up go on, whatever the others have piled up, and
//! what the limits bound is what slow peers cost. One per loop, used on its thread; it owns no bytes.

use crate::{
    Error,
    buffer::{Outbound, WaterMark},
    channel::config::ChannelConfig,
    resource::{GROUP_OUTBOUND, LOOP_OUTBOUND, OUTBOUND},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A loop tells its group of bytes no more exactly than this, so that loops do not fight for a cache line.
const GRANULARITY: usize = 64 * 1024;

/// What the loops of a group share: how much their channels have waiting.
#[derive(Debug)]
pub(crate) struct SharedBudget {
    used: AtomicUsize,
    limit: usize,
}

impl SharedBudget {
    pub(crate) fn new(limit: usize) -> Self {
        SharedBudget { used: AtomicUsize::new(0), limit }
    }
}

#[derive(Debug)]
pub(crate) struct OutboundBudget {
    limit: usize,
    used: usize,
    shared: Arc<SharedBudget>,
    /// What the group knows of `used`.
    told: usize,
    /// What the other loops of the group have waiting, as of the last turn.
    others: usize,
}

/// A buffer on loan to a channel, and what may be in it.
#[derive(Debug, Default)]
pub(crate) struct OutboundLease {
    pub(crate) buffer: Outbound,
    /// The time of the phase in which it was lent.
    pub(crate) now: u64,
    /// So many bytes of it the loop knows of.
    counted: usize,
    /// So many may wait.
    limit: usize,
    bound: Bound,
    /// Up to this length neither limit nor mark are reached.
    certain_room: usize,
}

/// Whose limit it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Bound {
    #[default]
    Channel,
    EventLoop(usize),
    Group(usize),
}

impl Bound {
    /// What goes beyond it fails with this; `limit` is the channel's, if it is that.
    pub(crate) fn full(self, limit: usize) -> Error {
        let (what, limit) = match self {
            Bound::Channel => (OUTBOUND, limit),
            Bound::EventLoop(limit) => (LOOP_OUTBOUND, limit),
            Bound::Group(limit) => (GROUP_OUTBOUND, limit),
        };
        Error::Full { what, limit }
    }
}

impl OutboundLease {
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Memory that it keeps, used or not, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() - size_of::<Outbound>() + self.buffer.memory()
    }

    /// Whether there is room for so many bytes more, and no mark reached, as far as one comparison can tell.
    #[inline]
    pub(crate) fn has_certain_room(&self, more: usize) -> bool {
        self.buffer.len() + more <= self.certain_room
    }

    /// Makes room for whatever comes, and stops watching the marks.
    pub(crate) fn lift_limit(&mut self) {
        (self.limit, self.certain_room) = (usize::MAX, usize::MAX);
    }

    /// Makes room for a message that was accepted before it came here.
    pub(crate) fn admit(&mut self) {
        self.limit = usize::MAX;
    }

    pub(crate) fn restore_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    #[inline]
    fn set_limit(&mut self, limit: usize, bound: Bound, config: &ChannelConfig) {
        (self.limit, self.bound) = (limit, bound);
        let usual = limit > config.water_mark.high();
        self.certain_room = if usual { config.certain_room } else { self.mark(config).certain_room() };
    }

    /// The marks between which a producer pauses and resumes: the channel's own, lower where its loop has little memory left,
    /// so that a producer pauses before the limit is reached.
    pub(crate) fn mark(&self, config: &ChannelConfig) -> WaterMark {
        config.water_mark.capped(self.limit.saturating_sub(1))
    }

    /// What a write beyond the limit fails with.
    pub(crate) fn full(&self) -> Error {
        self.bound.full(self.limit)
    }

    /// Whether it says that too much waits.
    pub(crate) fn is_full(error: &Error) -> bool {
        matches!(error, Error::Full { what: OUTBOUND | LOOP_OUTBOUND | GROUP_OUTBOUND, .. })
    }
}

impl OutboundBudget {
    pub(crate) fn new(limit: usize, shared: Arc<SharedBudget>) -> Self {
        OutboundBudget { limit, used: 0, shared, told: 0, others: 0 }
    }

    /// No limit but those of the channels.
    pub(crate) fn unlimited() -> Self {
        Self::new(usize::MAX, Arc::new(SharedBudget::new(usize::MAX)))
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Says how much may wait in the buffer during the next callback.
    #[inline]
    pub(crate) fn allow(&self, loan: &mut OutboundLease, config: &ChannelConfig) {
        let pending = loan.buffer.len();
        let (limit, bound) = self.allowed(pending, config.max_outbound, config.water_mark.low());
        loan.set_limit(limit, bound, config);
    }

    /// How much may wait where `pending` does already, and whose limit that is: `most` is the channel's own, and `least` it
    /// may have whatever the others have.
    #[inline]
    pub(crate) fn allowed(&self, pending: usize, most: usize, least: usize) -> (usize, Bound) {
        let room = self.limit.saturating_sub(self.used);
        let group = self.shared.limit.saturating_sub(self.used).saturating_sub(self.others);
        let share = room.min(group).saturating_add(pending).max(least);
        if most <= share {
            (most, Bound::Channel)
        } else if group < room {
            (share, Bound::Group(self.shared.limit))
        } else {
            (share, Bound::EventLoop(self.limit))
        }
    }

    /// Brings the sum up to date with what waits in the buffer.
    #[inline]
    pub(crate) fn count(&mut self, loan: &mut OutboundLease) {
        let pending = loan.buffer.len();
        self.recount(&mut loan.counted, pending);
    }

    /// As `count`, of what waits elsewhere than in a buffer on loan: `counted` is what the sum has of it.
    #[inline]
    pub(crate) fn recount(&mut self, counted: &mut usize, pending: usize) {
        self.used = self.used - *counted + pending;
        *counted = pending;
    }

    /// The end of a turn: the group hears of this loop, and this loop of the others.
    #[inline]
    pub(crate) fn exchange(&mut self) {
        if self.used.abs_diff(self.told) >= GRANULARITY || (self.used == 0 && self.told > 0) {
            // Wraps around where it is less than before, which is what the addition of a difference needs.
            self.shared.used.fetch_add(self.used.wrapping_sub(self.told), Ordering::Relaxed);
            self.told = self.used;
        }
        // Another loop may be between two of these: then the sum is of no one moment, and never below zero for long.
        self.others = self.shared.used.load(Ordering::Relaxed).saturating_sub(self.told);
    }
}

impl Drop for OutboundBudget {
    /// A loop that ends takes its channels' bytes with it.
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.told, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelOptions, buffer::WaterMark};

    fn config(max_outbound: usize, low: usize) -> ChannelConfig {
        let mark = WaterMark::new(low, low).expect("a mark");
        ChannelOptions::new().water_mark(mark).max_outbound(max_outbound).build().expect("in range")
    }

    fn loan(bytes: usize) -> OutboundLease {
        let mut loan = OutboundLease::default();
        loan.buffer.put_slice(&vec![0; bytes]);
        loan
    }

    #[test]
    fn a_loop_bounds_the_sum_and_leaves_each_its_low_mark() {
        let mut budget = OutboundBudget::new(1000, Arc::new(SharedBudget::new(usize::MAX)));
        let config = config(700, 50);
        let mut slow = loan(0);
        budget.allow(&mut slow, &config);
        assert_eq!(slow.limit(), 700);
        assert_eq!(slow.full().to_string(), Error::Full { what: OUTBOUND, limit: 700 }.to_string());
        slow.buffer.put_slice(&[0; 700]);
        budget.count(&mut slow);
        assert_eq!(budget.used(), 700);
        let mut other = loan(0);
        budget.allow(&mut other, &config);
        assert_eq!(other.limit(), 300);
        other.buffer.put_slice(&[0; 300]);
        budget.count(&mut other);
        budget.allow(&mut other, &config);
        assert_eq!(other.limit(), 300, "what it has it may keep");
        assert!(matches!(other.full(), Error::Full { what: LOOP_OUTBOUND, limit: 1000 }));
        let mut healthy = loan(0);
        budget.allow(&mut healthy, &config);
        assert_eq!(healthy.limit(), 50, "its low mark");
        other.buffer.consume(200);
        budget.count(&mut other);
        budget.allow(&mut healthy, &config);
        assert_eq!(healthy.limit(), 200);
    }

    #[test]
    fn loops_of_a_group_hear_of_each_other_at_the_end_of_a_turn() {
        let shared = Arc::new(SharedBudget::new(3 * GRANULARITY));
        let mut one = OutboundBudget::new(usize::MAX, shared.clone());
        let mut two = OutboundBudget::new(usize::MAX, shared.clone());
        let config = config(usize::MAX, 1);
        let mut bytes = loan(2 * GRANULARITY);
        one.count(&mut bytes);
        one.exchange();
        two.exchange();
        let mut other = loan(0);
        two.allow(&mut other, &config);
        assert_eq!(other.limit(), GRANULARITY);
        assert!(matches!(other.full(), Error::Full { what: GROUP_OUTBOUND, .. }));
        bytes.buffer.consume(2 * GRANULARITY);
        one.count(&mut bytes);
        one.exchange();
        two.exchange();
        two.allow(&mut other, &config);
        assert_eq!(other.limit(), 3 * GRANULARITY);
        bytes.buffer.put_slice(&vec![0; GRANULARITY]);
        one.count(&mut bytes);
        one.exchange();
        drop(one);
        assert_eq!(shared.used.load(Ordering::Relaxed), 0, "nothing is left of a loop that has ended");
    }

    #[test]
    fn little_news_is_not_told() {
        let shared = Arc::new(SharedBudget::new(usize::MAX));
        let mut budget = OutboundBudget::new(usize::MAX, shared.clone());
        let mut bytes = loan(GRANULARITY - 1);
        budget.count(&mut bytes);
        budget.exchange();
        assert_eq!(shared.used.load(Ordering::Relaxed), 0);
    }
}
