//! `Lease`: the partitions that a node owns, and for how long. `ClockReading`: the time of a store.

use std::time::Duration;

/// The partitions that a node owns, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Each partition with the epoch under which the node owns it, in order.
    pub partitions: Vec<(u32, i64)>,
    /// Partitions that the node will give back, in order. It begins no more runs in them, but fires
    /// and ends its claimed runs.
    pub draining: Vec<(u32, i64)>,
    /// Partitions that were taken over from a node whose lease had ended, with their epochs, in
    /// order. One of their timers may have ended that node.
    pub suspects: Vec<(u32, i64)>,
    /// For how long the node may fire timers, counted from before the request for the lease. Less
    /// than the store's own limit, so that the node stops before another one takes over.
    pub valid_for: Duration,
    /// Whether all timers have to be loaded again although the partitions are the same. A store
    /// sets it once after its server was replaced, because the new server may lack transactions
    /// of the old one.
    pub needs_reload: bool,
    /// How long to wait before the lease is renewed.
    pub renew_after: Duration,
}

impl Lease {
    /// Creates the lease of partitions with their epochs, in order. No partition is drained or
    /// suspect, and the timers need not be loaded again.
    pub fn new(partitions: Vec<(u32, i64)>, valid_for: Duration, renew_after: Duration) -> Self {
        Lease {
            partitions,
            draining: Vec::new(),
            suspects: Vec::new(),
            valid_for,
            needs_reload: false,
            renew_after,
        }
    }
}

/// A reading of the clock by which all nodes of a store agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockReading {
    /// The time, in microseconds since 1970 (UTC). Not later than the clock's own.
    pub micros: i64,
    /// How far the clock may be ahead of that.
    pub error: Duration,
}

impl ClockReading {
    /// Creates a reading, in microseconds since 1970 (UTC), with its error.
    pub fn new(micros: i64, error: Duration) -> Self {
        ClockReading { micros, error }
    }
}
