//! Input: bytes of the peer and their end, from the driver to the pipeline.
//!
//! Invariant: an idle channel keeps no input unless it is a part of a message.

mod decode;
mod demand;
mod end;
mod pauses;

use super::ChannelState;
use crate::channel::undecoded::Undecoded;

/// The half of a channel that the peer writes.
pub(crate) struct Inbound {
    /// Input that is not decoded yet, in memory of the channel.
    undecoded: Undecoded,
    /// The time of the last bytes.
    last_read: u64,
    bytes: u64,
    messages: u64,
}

impl Inbound {
    pub(super) fn new(now: u64) -> Self {
        Inbound { undecoded: Undecoded::default(), last_read: now, bytes: 0, messages: 0 }
    }

    /// Returns the bytes that are not decoded yet.
    #[inline]
    pub(crate) fn undecoded(&self) -> &[u8] {
        &self.undecoded
    }

    /// Takes the bytes that are not decoded yet, to decode them or to append to them.
    #[inline]
    pub(in crate::channel) fn take_undecoded(&mut self) -> Undecoded {
        self.undecoded.take()
    }

    /// Keeps bytes for the next read.
    #[inline]
    pub(in crate::channel) fn keep(&mut self, undecoded: Undecoded) {
        debug_assert!(self.undecoded.is_empty(), "kept bytes are taken before others are kept");
        self.undecoded = undecoded;
    }

    /// Drops the bytes that are not decoded yet.
    pub(super) fn drop_undecoded(&mut self) {
        self.undecoded = Undecoded::default();
    }

    /// Returns the number of bytes read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of messages that were passed to the handler.
    #[inline]
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Counts a message that is passed to the handler.
    #[inline]
    pub(crate) fn count_message(&mut self) {
        self.messages += 1;
    }

    /// Returns the time of the last bytes.
    #[inline]
    pub(crate) fn last_read(&self) -> u64 {
        self.last_read
    }

    /// Counts unread bytes in the socket as activity at `now`.
    pub(crate) fn note_unread(&mut self, now: u64) {
        self.last_read = now;
    }
}

impl ChannelState {
    /// Accounts for the last `n` bytes of `data`, which were read from the transport.
    #[inline]
    pub(in crate::channel) fn note_read(&mut self, data: &[u8], n: usize, now: u64) {
        if self.inbound.bytes == 0 {
            self.note_first_byte();
        }
        self.inbound.last_read = now;
        self.inbound.bytes += n as u64;
        self.log_read(data, n);
    }
}
