//! Names of things: which loop, which slot in it, and for the how-manieth time the slot is used.
//!
//! An id is never reused: a late event, cancel or message for a channel that is gone finds another generation
//! in its slot and is quietly dropped.

use std::fmt;

/// A slot of one loop together with its generation: what the loop itself calls a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Bits of a token that hold the index; the rest hold (the low bits of) the generation.
const INDEX_BITS: u32 = usize::BITS / 2 + usize::BITS / 8;

impl Key {
    /// Slots that can be told apart in a token: 2^40 where a pointer has 64 bits (so all), 2^20 where it has 32.
    pub(crate) const MAX_INDEX: u64 = (1u64 << INDEX_BITS) - 2;

    /// The key as a number for the poll; not all bits of the generation fit, see [`Key::matches`].
    #[inline]
    pub(crate) fn token(self) -> usize {
        (self.generation as usize) << INDEX_BITS | self.index as usize
    }

    /// The slot that a token names.
    #[inline]
    pub(crate) fn index_of(token: usize) -> u32 {
        (token & ((1 << INDEX_BITS) - 1)) as u32
    }

    /// Whether a token was made from this key, as far as the token's bits can tell.
    #[inline]
    pub(crate) fn matches(self, token: usize) -> bool {
        self.token() == token
    }
}

/// The identity of a channel: unique in the process, never reused, printable.
///
/// It prints as `loop-slot.use`: `0-17.3` is the third channel in slot 17 of loop 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId {
    pub(crate) event_loop: u32,
    pub(crate) key: Key,
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}.{}", self.event_loop, self.key.index, self.key.generation)
    }
}

impl fmt::Debug for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
