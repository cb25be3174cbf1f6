//! `Position`: a place in the messages of a topic.

use std::fmt;

/// A place in the messages of a topic: behind the message with this offset.
///
/// Positions of different epochs cannot be compared. [`Epochs`](super::Epochs) decides whether a
/// position is still valid. A client may keep its position as two numbers; both fit in the numbers
/// of JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Position {
    /// The id of the epoch in which the message was stored: random, at least 1, below 2^53.
    pub epoch: u64,
    /// The offset of the message, from 1. Zero is the place before the first message.
    pub offset: u64,
}

impl Position {
    /// Creates a position. Every pair of numbers is accepted; a wrong one is not
    /// [valid](super::Epochs::is_valid).
    pub const fn new(epoch: u64, offset: u64) -> Self {
        Position { epoch, offset }
    }
}

impl fmt::Display for Position {
    /// Writes `epoch:offset`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.offset)
    }
}
