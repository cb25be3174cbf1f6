//! The traffic of one channel.
//!
//! Invariants: bytes are counted where they cross the socket, and messages where the handler reads
//! and writes them, as in the loop's own metrics. Counting costs one addition. Runs on the
//! channel's loop.

use std::time::Instant;

/// The traffic counters of a channel, from [`Context::stats`](crate::Context::stats) and
/// [`Channel::stats`](crate::Channel::stats).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelStats {
    /// Bytes received from the peer.
    pub bytes_read: u64,
    /// Bytes that the kernel has accepted.
    pub bytes_written: u64,
    /// Messages passed to the handler, including the current one.
    pub messages_read: u64,
    /// Messages written and encoded. Messages that stages write on their own, such as heartbeats,
    /// are not counted.
    pub messages_written: u64,
    /// Messages dropped because the outbound buffer was full
    /// ([`Overflow`](crate::channel::Overflow)).
    pub messages_dropped: u64,
    /// Messages replaced by newer ones before they were sent
    /// ([`write_latest`](crate::Context::write_latest)). Included in `messages_written`.
    pub messages_conflated: u64,
    /// Encoded bytes that the kernel has not accepted yet.
    pub pending_bytes: usize,
    /// The time at which the channel was created, by the loop's clock.
    pub connected: Instant,
    /// The time of the last read, by the loop's clock. `None` if no bytes were read yet.
    pub last_read: Option<Instant>,
    /// The time at which the kernel last accepted bytes, by the loop's clock. `None` if it has not
    /// accepted any.
    pub last_written: Option<Instant>,
}
