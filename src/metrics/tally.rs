//! What channels do in a turn, counted in plain numbers.
//!
//! Always holds: it is the loop's own, so counting one message costs an addition; whoever drives the channels takes the
//! numbers out once per turn. Runs on the loop's thread.

/// Counts since it was last taken.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Messages that handlers were given.
    pub(crate) messages_read: u64,
    /// Messages that were written and encoded.
    pub(crate) messages_written: u64,
    /// Messages that were dropped because too much waits.
    pub(crate) messages_dropped: u64,
    /// Messages that were refused because too much waits.
    pub(crate) messages_refused: u64,
    /// Channels that were closed because too much waits.
    pub(crate) closes_overflowed: u64,
    /// Times that a limit of traffic held up reading, and writing.
    pub(crate) reads_paused: u64,
    pub(crate) writes_paused: u64,
    /// Channels that the messages of broadcasts were written to, or were to be.
    pub(crate) deliveries: u64,
    /// Encodings of messages of broadcasts.
    pub(crate) broadcast_encodings: u64,
    /// Times that a channel paused its reading because the program held too much of it.
    pub(crate) reads_held: u64,
    /// Errors and panics of channels.
    pub(crate) channel_errors: u64,
    /// Entries taken out of the heap before they came due.
    pub(crate) timers_cancelled: u64,
    /// Entries taken off the wheel before they came due.
    pub(crate) wheel_cancelled: u64,
}
