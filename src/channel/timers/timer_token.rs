//! The timers of a channel, and how an entry of the heap or the wheel names one.

use crate::id::Key;

/// A timer of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelTimer {
    /// A task of the handler, by its slot among the channel's tasks.
    Task(u32),
    /// Idle timeouts, time limits and the timers of stages.
    Watch,
    /// The end of a pause that a traffic limit has caused.
    Shaper,
    /// The time after which a closing channel no longer waits for its peer.
    CloseTimeout,
    /// The time after which the filters must be established.
    Handshake,
}

/// A channel and one of its timers, in eight bytes.
///
/// The entries of a channel are cancelled when it closes. So the generation only guards against
/// entries that a panic may have left behind, and some bits of it are enough, as for the poll
/// ([`Key::matches`]).
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimerToken {
    index: u32,
    /// The timer; above it, low bits of the channel's generation.
    rest: u32,
}

const _: () = assert!(size_of::<TimerToken>() == 8, "a larger token grows wheel entries to 40 bytes");

impl TimerToken {
    /// A channel has at most 65,536 tasks. Further numbers stand for its other timers.
    const TASKS: u32 = 1 << 16;
    const WATCH: u32 = Self::TASKS;
    const SHAPER: u32 = Self::TASKS + 1;
    const CLOSE_TIMEOUT: u32 = Self::TASKS + 2;
    const HANDSHAKE: u32 = Self::TASKS + 3;
    const TIMER_BITS: u32 = 17;
    const TIMER: u32 = (1 << Self::TIMER_BITS) - 1;

    #[inline]
    pub(crate) fn new(channel: Key, timer: ChannelTimer) -> Self {
        let timer = match timer {
            ChannelTimer::Task(slot) => {
                debug_assert!(slot < Self::TASKS, "task slot {slot}");
                slot
            }
            ChannelTimer::Watch => Self::WATCH,
            ChannelTimer::Shaper => Self::SHAPER,
            ChannelTimer::CloseTimeout => Self::CLOSE_TIMEOUT,
            ChannelTimer::Handshake => Self::HANDSHAKE,
        };
        TimerToken { index: channel.index, rest: channel.generation << Self::TIMER_BITS | timer }
    }

    #[inline]
    pub(crate) fn timer(self) -> ChannelTimer {
        match self.rest & Self::TIMER {
            Self::WATCH => ChannelTimer::Watch,
            Self::SHAPER => ChannelTimer::Shaper,
            Self::CLOSE_TIMEOUT => ChannelTimer::CloseTimeout,
            Self::HANDSHAKE => ChannelTimer::Handshake,
            slot => ChannelTimer::Task(slot),
        }
    }

    /// Returns the slot that the channel has, or had, in its loop.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// Returns whether the token belongs to this channel, as far as its bits of the generation can
    /// tell.
    #[inline]
    pub(crate) fn is_for(self, channel: Key) -> bool {
        self.index == channel.index
            && (self.rest ^ channel.generation << Self::TIMER_BITS) >> Self::TIMER_BITS == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_channel_and_its_timer() {
        let key = |index, generation| Key { index, generation };
        let timers = [
            ChannelTimer::Task(0),
            ChannelTimer::Task(65_535),
            ChannelTimer::Watch,
            ChannelTimer::Shaper,
            ChannelTimer::CloseTimeout,
            ChannelTimer::Handshake,
        ];
        for timer in timers {
            for channel in [key(0, 0), key(u32::MAX - 1, u32::MAX), key(7, 0x7FFF)] {
                let token = TimerToken::new(channel, timer);
                assert_eq!((token.index(), token.timer()), (channel.index, timer));
                assert!(token.is_for(channel));
                assert!(!token.is_for(key(channel.index, channel.generation.wrapping_add(1))));
                assert!(!token.is_for(key(channel.index ^ 1, channel.generation)));
            }
        }
    }
}
