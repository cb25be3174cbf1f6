//! Identifiers of channels and slots: the loop, the slot in it, and the generation of the slot.
//!
//! Invariant: an id is never reused. A late event, cancellation or message for a closed channel
//! finds another generation in the slot and is silently dropped.

use std::fmt;

/// A slot of a loop and its generation. Identifies a source within its loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The number of bits of a token that hold the index. The others hold the low bits of the
/// generation.
const INDEX_BITS: u32 = usize::BITS / 2 + usize::BITS / 8;

impl Key {
    /// The largest index that fits into a token: nearly 2^40 on 64-bit systems (so every index
    /// fits), nearly 2^20 on 32-bit systems.
    pub(crate) const MAX_INDEX: u64 = (1u64 << INDEX_BITS) - 2;

    /// Converts the key to a token for the poll. The token does not hold all bits of the
    /// generation, see [`Key::matches`].
    #[inline]
    pub(crate) fn token(self) -> usize {
        (self.generation as usize) << INDEX_BITS | self.index as usize
    }

    /// Returns the slot that a token identifies.
    #[inline]
    pub(crate) fn index_of(token: usize) -> u32 {
        (token & ((1 << INDEX_BITS) - 1)) as u32
    }

    /// Returns whether a token was made from this key, as far as the token's bits can distinguish
    /// keys.
    #[inline]
    pub(crate) fn matches(self, token: usize) -> bool {
        self.token() == token
    }
}

/// The identity of a channel. Unique in the process and never reused.
///
/// Its text form is `loop-slot.generation`: `0-17.3` is generation 3 of slot 17 of loop 0.
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
