//! Numbers of sockets and polls. A number is not valid for the next socket or poll in the same
//! place.

use std::fmt;

/// The number of a socket: its place, and how often the place was used before. It has 32 bits,
/// because transports keep it in place of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SocketId(u32);

/// The bits of a number that are the place. The other bits are the life of the place.
const PLACE: u32 = 20;

impl SocketId {
    pub(super) const PLACES: usize = 1 << PLACE;
    pub(super) const LIVES: u32 = 1 << (u32::BITS - PLACE);

    pub(super) fn new(place: usize, life: u32) -> Self {
        debug_assert!(place < Self::PLACES && life < Self::LIVES);
        SocketId(life << PLACE | place as u32)
    }

    pub(super) fn place(self) -> usize {
        self.0 as usize % Self::PLACES
    }

    pub(super) fn life(self) -> u32 {
        self.0 >> PLACE
    }

    /// Returns the number for a record of the trace.
    pub(super) fn number(self) -> u64 {
        self.0.into()
    }
}

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a poll: its place, and how often the place was used before. So a waker or a socket
/// of a closed poll does not find the next one in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PollId {
    pub(super) place: usize,
    pub(super) life: u32,
}
