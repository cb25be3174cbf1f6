//! The traffic of one channel.
//!
//! Invariants: bytes are counted where they cross the socket, and messages where the handler reads
//! and writes them, as in the loop's own metrics. Counting costs one addition. Runs on the
//! channel's loop.

use std::time::Instant;

/// What a channel has moved so far; from [`Context::stats`](crate::Context::stats) and [`Channel::stats`](crate::Channel::stats).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelStats {
    /// Bytes that came from the peer.
    pub bytes_read: u64,
    /// Bytes of ours that the kernel took.
    pub bytes_written: u64,
    /// Messages that the handler was given, the one that it has just now among them.
    pub messages_read: u64,
    /// Messages that were written and encoded; those that stages write by themselves (heartbeats) are not counted.
    pub messages_written: u64,
    /// Messages that were dropped because too much waits ([`Overflow`](crate::Overflow)).
    pub messages_dropped: u64,
    /// Bytes that are encoded and not yet taken by the kernel.
    pub pending_bytes: usize,
    /// When the channel was made, by the loop's clock.
    pub connected: Instant,
    /// When bytes last came, by the loop's clock; none if none have.
    pub last_read: Option<Instant>,
    /// When the kernel last took bytes, by the loop's clock; none if it has taken none.
    pub last_written: Option<Instant>,
}

/// What every channel counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) messages_read: u64,
    pub(crate) messages_written: u64,
    /// The time of the turn in which the channel was made.
    pub(in crate::channel) connected: u64,
}

impl Counts {
    pub(crate) fn new(now: u64) -> Self {
        Counts { bytes_read: 0, bytes_written: 0, messages_read: 0, messages_written: 0, connected: now }
    }
}
