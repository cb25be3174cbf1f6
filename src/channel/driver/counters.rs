//! Counters of the bytes that drivers move and of the calls that move them.
//!
//! They are exact in the middle of a turn, unlike [`Tally`](crate::channel::Tally), which is added up at
//! the end of it. Only the loop's thread adds; any thread reads.

use crate::sync::Counter;

#[derive(Debug, Default)]
pub(crate) struct IoCounters {
    pub(crate) reads: Counter,
    /// Reads that found nothing.
    pub(crate) reads_blocked: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) writes: Counter,
    /// Writes of which the transport took nothing.
    pub(crate) writes_blocked: Counter,
    pub(crate) bytes_written: Counter,
}
