//! The limit of pending output, over all channels of a loop and of a group.
//!
//! A channel leases its buffer from the loop ([`OutboundLease`]). With the lease comes the amount
//! that may wait during the callback: the channel's own limit or the room that loop and group have
//! left, but at least its low water mark. The high mark is capped below that amount. So a channel
//! that keeps up is never refused because of slow ones, and an idle channel costs the sum nothing.
//!
//! Invariants: `used` is the pending output of the loop's channels and datagram channels, as of the
//! last callback or flush of each. The sum of the group is updated at the end of a turn. A channel
//! may always have as much as its low water mark, and a datagram channel one datagram. One per
//! loop, used on its thread. Owns no bytes.

use crate::{
    buffer::{OutboundBuffer, WaterMark},
    channel::{config::ChannelConfig, pending_writes::PendingWrites},
    error::{Error, Resource},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The granularity at which a loop reports its bytes to the group, to avoid contention for a cache
/// line.
const GRANULARITY: usize = 64 * 1024;

/// The pending bytes of all loops of a group, and their limit.
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
    /// The part of `used` that was reported to the group.
    reported: usize,
    /// The pending bytes of the group's other loops, as of the last turn.
    others: usize,
    /// The value of `used` at which the loop or the group is full, as of the last turn.
    full_at: usize,
}

/// A buffer of the loop while a channel uses it, and its limit.
#[derive(Default)]
pub(crate) struct OutboundLease {
    pub(crate) buffer: OutboundBuffer,
    /// The time of the phase in which it was leased.
    pub(crate) now: u64,
    /// The part of its bytes that the budget has counted.
    counted: usize,
    /// The limit of its bytes.
    limit: usize,
    bound: Bound,
    /// The weight up to which neither the limit nor a mark is reached.
    certain_room: usize,
    /// Whether the bytes are those of one message, apart from the channel's buffer.
    pub(crate) apart: Apart,
    /// Messages in the buffer whose boundaries or completions matter.
    pub(in crate::channel) writes: PendingWrites,
}

/// Whether a buffer is for one message, apart from the buffer of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Apart {
    /// It is the buffer of one channel.
    #[default]
    No,
    /// Several channels share the message.
    Shared,
    /// A stage has refused to encode the message for several channels.
    Refused,
    /// A newer message may replace it.
    Alone,
    /// A stage requires that the message is sent.
    Stays,
}

/// The owner of a limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Bound {
    #[default]
    Channel,
    EventLoop(usize),
    Group(usize),
}

impl Bound {
    /// Returns the error of a write beyond the limit. `limit` is that of the channel.
    pub(crate) fn full(self, limit: usize) -> Error {
        let (resource, limit) = match self {
            Bound::Channel => (Resource::ChannelOutput, limit),
            Bound::EventLoop(limit) => (Resource::LoopOutput, limit),
            Bound::Group(limit) => (Resource::GroupOutput, limit),
        };
        Error::Full { resource, limit }
    }
}

impl OutboundLease {
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the part of its bytes that the budget has counted.
    #[cfg(feature = "simulation")]
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }

    /// Returns whether it has nothing to drop, and little memory of its own.
    #[inline]
    pub(crate) fn is_light(&self) -> bool {
        self.buffer.is_light() && self.writes.is_light()
    }

    /// Returns its memory in bytes, used or not.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() - size_of::<OutboundBuffer>() + self.buffer.memory() + self.writes.memory()
    }

    /// Returns whether `more` bytes certainly reach neither the limit nor a mark. One comparison.
    #[inline]
    pub(crate) fn has_certain_room(&self, more: usize) -> bool {
        self.buffer.weight() + more <= self.certain_room
    }

    /// Lifts the limit and the marks.
    pub(crate) fn lift_limit(&mut self) {
        (self.limit, self.certain_room) = (usize::MAX, usize::MAX);
    }

    /// Lifts the limit for a message that was accepted before.
    pub(crate) fn admit(&mut self) {
        self.limit = usize::MAX;
    }

    pub(crate) fn restore_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    fn set_limit(&mut self, limit: usize, bound: Bound, config: &ChannelConfig) {
        (self.limit, self.bound) = (limit, bound);
        let usual = limit > config.water_mark.high();
        self.certain_room = if usual { config.certain_room } else { self.mark(config).certain_room() };
    }

    /// Returns the current water marks: those of the channel, or lower ones if its loop has little
    /// memory left, so that a producer pauses before the limit is reached.
    pub(crate) fn mark(&self, config: &ChannelConfig) -> WaterMark {
        config.water_mark.capped(self.limit.saturating_sub(1))
    }

    /// Returns the error of a write beyond the limit.
    pub(crate) fn full(&self) -> Error {
        self.bound.full(self.limit)
    }

    /// Returns whether the error reports a full outbound buffer.
    pub(crate) fn is_full(error: &Error) -> bool {
        matches!(
            error,
            Error::Full {
                resource: Resource::ChannelOutput | Resource::LoopOutput | Resource::GroupOutput,
                ..
            }
        )
    }
}

impl OutboundBudget {
    pub(crate) fn new(limit: usize, shared: Arc<SharedBudget>) -> Self {
        let full_at = limit.min(shared.limit);
        OutboundBudget { limit, used: 0, shared, reported: 0, others: 0, full_at }
    }

    /// Creates a budget without limits.
    pub(crate) fn unlimited() -> Self {
        Self::new(usize::MAX, Arc::new(SharedBudget::new(usize::MAX)))
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Sets the limit of the buffer for the next callback.
    #[inline]
    pub(crate) fn allow(&self, lease: &mut OutboundLease, config: &ChannelConfig) {
        // The usual case: there is room for the largest outbound buffer that the channel may have.
        if self.used.checked_add(config.max_outbound).is_some_and(|used| used <= self.full_at) {
            (lease.limit, lease.bound) = (config.max_outbound, Bound::Channel);
            lease.certain_room = config.certain_room;
        } else {
            self.allow_share(lease, config);
        }
    }

    #[inline(never)]
    fn allow_share(&self, lease: &mut OutboundLease, config: &ChannelConfig) {
        let pending = lease.buffer.len();
        let (limit, bound) = self.allowed(pending, config.max_outbound, config.water_mark.low());
        lease.set_limit(limit, bound, config);
    }

    /// Returns the limit of a buffer that has `pending` bytes, and the limit's owner. `most` is the
    /// limit of the channel, `least` the part that no other channel can take.
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

    /// Updates the sum with the bytes of the buffer.
    #[inline]
    pub(crate) fn count(&mut self, lease: &mut OutboundLease) {
        let pending = lease.buffer.len();
        self.recount(&mut lease.counted, pending);
    }

    /// Like `count`, for `pending` bytes outside of a leased buffer, of which `counted` are in the
    /// sum.
    #[inline]
    pub(crate) fn recount(&mut self, counted: &mut usize, pending: usize) {
        self.used = self.used - *counted + pending;
        *counted = pending;
    }

    /// Exchanges the sums with the group at the end of a turn.
    #[inline]
    pub(crate) fn exchange(&mut self) {
        if self.used.abs_diff(self.reported) >= GRANULARITY || (self.used == 0 && self.reported > 0) {
            // The difference may be negative; the addition wraps around.
            self.shared.used.fetch_add(self.used.wrapping_sub(self.reported), Ordering::Relaxed);
            self.reported = self.used;
        }
        // Another loop may be in the middle of an exchange, so the sum may be off for a moment.
        self.others = self.shared.used.load(Ordering::Relaxed).saturating_sub(self.reported);
        self.full_at = self.limit.min(self.shared.limit.saturating_sub(self.others));
    }
}

impl Drop for OutboundBudget {
    /// Subtracts the bytes of a loop that ends from the group's sum.
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.reported, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{buffer::WaterMark, channel::config::ChannelOptions};

    fn config(max_outbound: usize, low: usize) -> ChannelConfig {
        let mark = WaterMark::new(low, low).expect("the mark is valid");
        ChannelOptions::new().water_mark(mark).max_outbound(max_outbound).build().expect("in range")
    }

    fn lease(bytes: usize) -> OutboundLease {
        let mut lease = OutboundLease::default();
        lease.buffer.put_slice(&vec![0; bytes]);
        lease
    }

    #[test]
    fn the_sum_of_a_loop_is_bounded_and_each_channel_has_its_low_mark() {
        let mut budget = OutboundBudget::new(1000, Arc::new(SharedBudget::new(usize::MAX)));
        let config = config(700, 50);
        let mut slow = lease(0);
        budget.allow(&mut slow, &config);
        assert_eq!(slow.limit(), 700);
        assert_eq!(
            slow.full().to_string(),
            Error::Full { resource: Resource::ChannelOutput, limit: 700 }.to_string()
        );
        slow.buffer.put_slice(&[0; 700]);
        budget.count(&mut slow);
        assert_eq!(budget.used(), 700);
        let mut other = lease(0);
        budget.allow(&mut other, &config);
        assert_eq!(other.limit(), 300);
        other.buffer.put_slice(&[0; 300]);
        budget.count(&mut other);
        budget.allow(&mut other, &config);
        assert_eq!(other.limit(), 300, "pending bytes are kept");
        assert!(matches!(other.full(), Error::Full { resource: Resource::LoopOutput, limit: 1000 }));
        let mut healthy = lease(0);
        budget.allow(&mut healthy, &config);
        assert_eq!(healthy.limit(), 50, "its low mark");
        other.buffer.consume(200);
        budget.count(&mut other);
        budget.allow(&mut healthy, &config);
        assert_eq!(healthy.limit(), 200);
    }

    #[test]
    fn loops_of_a_group_exchange_their_sums_at_the_end_of_a_turn() {
        let shared = Arc::new(SharedBudget::new(3 * GRANULARITY));
        let mut one = OutboundBudget::new(usize::MAX, shared.clone());
        let mut two = OutboundBudget::new(usize::MAX, shared.clone());
        let config = config(usize::MAX, 1);
        let mut bytes = lease(2 * GRANULARITY);
        one.count(&mut bytes);
        one.exchange();
        two.exchange();
        let mut other = lease(0);
        two.allow(&mut other, &config);
        assert_eq!(other.limit(), GRANULARITY);
        assert!(matches!(other.full(), Error::Full { resource: Resource::GroupOutput, .. }));
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
        assert_eq!(shared.used.load(Ordering::Relaxed), 0, "the bytes of an ended loop are subtracted");
    }

    #[test]
    fn small_changes_are_not_exchanged() {
        let shared = Arc::new(SharedBudget::new(usize::MAX));
        let mut budget = OutboundBudget::new(usize::MAX, shared.clone());
        let mut bytes = lease(GRANULARITY - 1);
        budget.count(&mut bytes);
        budget.exchange();
        assert_eq!(shared.used.load(Ordering::Relaxed), 0);
    }
}
