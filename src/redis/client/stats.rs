//! `RedisStats`: counters of a client.

/// Counters of a [`RedisClient`](super::RedisClient), from
/// [`stats`](super::RedisClient::stats). They include all connections for commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Commands that wait to be sent, or for a reply.
    pub pending: usize,
    /// The bytes of these commands.
    pub pending_bytes: usize,
    /// Commands that were sent. A transaction counts once.
    pub sent: u64,
    /// Commands that failed with [`MayBeExecuted`](super::super::RedisError::MayBeExecuted).
    pub uncertain: u64,
    /// Connections that have become ready, the first ones included.
    pub connects: u64,
    /// Connections that are ready.
    pub connected: usize,
}
