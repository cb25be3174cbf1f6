//! What the timers of a loop hold: an entry of its heap, an entry of its wheel.

use crate::{clock::TimeSource, id::Key, timer::QueueKey};
use std::{panic::Location, sync::Arc};

/// What waits on the loop's wheel, in eight bytes.
///
/// What a channel has there is taken out when it closes, so the generation tells apart only what a panic may have left behind:
/// as for the poll ([`Key::matches`]), some bits of it are enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WheelToken {
    index: u32,
    /// Where the task lies in the channel, or [`WheelToken::WATCH`]; above that, low bits of the channel's generation.
    rest: u32,
}

impl WheelToken {
    /// A channel has 65,536 tasks at most, and the timeout of its close.
    const SLOT_BITS: u32 = 17;

    /// Stands for what the channel watches by itself; no channel has so many tasks.
    pub(crate) const WATCH: u32 = (1 << Self::SLOT_BITS) - 1;

    #[inline]
    pub(crate) fn new(channel: Key, slot: u32) -> Self {
        debug_assert!(slot <= Self::WATCH);
        WheelToken { index: channel.index, rest: channel.generation << Self::SLOT_BITS | slot }
    }

    #[inline]
    pub(crate) fn watch(channel: Key) -> Self {
        Self::new(channel, Self::WATCH)
    }

    /// The slot that the channel has, or had, in the loop.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// Where the task lies in the channel, or [`WheelToken::WATCH`].
    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.rest & Self::WATCH
    }

    /// Whether it was made for this channel, as far as its bits can tell.
    #[inline]
    pub(crate) fn is_for(self, channel: Key) -> bool {
        let WheelToken { index, rest } = Self::new(channel, self.slot());
        (index, rest) == (self.index, self.rest)
    }
}

const _: () = assert!(size_of::<WheelToken>() == 8, "an entry of the wheel takes 32 bytes, or 40");

/// What waits in the loop's heap.
pub(crate) enum Due {
    /// A task for the handler of a channel, which lies in this slot there.
    Channel(Key, u32),
    /// A time limit or a retry of the source itself: accepting again, connecting, closing.
    Source(Key),
    /// A task of the loop.
    Task(Arc<dyn Scheduled>),
}

impl Due {
    /// In the place of a task's slot: the channel was held up by the limits of its traffic, and goes on.
    pub(crate) const SHAPER: u32 = u32::MAX;
}

/// A task of the loop that waits for its time.
pub(crate) trait Scheduled: Send + Sync {
    /// Runs it; the next deadline if it is periodic and goes on.
    fn run(&self, time: &TimeSource) -> Option<u64>;

    /// Tells it that it will never run (again).
    fn abandon(&self);

    /// Where it was scheduled, for reports.
    fn origin(&self) -> &'static Location<'static>;

    /// Whether it is still to run.
    fn is_waiting(&self) -> bool;

    /// Where in the heap it waits, so that a cancel finds it; for the loop's own use.
    fn set_place(&self, place: Option<QueueKey>);

    /// Where in the heap it waits.
    fn place(&self) -> Option<QueueKey>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_wheel_says_whose_it_is() {
        let key = |index, generation| Key { index, generation };
        for slot in [0, 65_536, WheelToken::WATCH] {
            for channel in [key(0, 0), key(u32::MAX - 1, u32::MAX), key(7, 0x7FFF)] {
                let coarse = WheelToken::new(channel, slot);
                assert_eq!((coarse.index(), coarse.slot()), (channel.index, slot));
                assert!(coarse.is_for(channel));
                assert!(!coarse.is_for(key(channel.index, channel.generation.wrapping_add(1))));
                assert!(!coarse.is_for(key(channel.index ^ 1, channel.generation)));
            }
        }
    }
}
