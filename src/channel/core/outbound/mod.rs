//! Output: messages of the pipeline and of handles, until the transport has accepted their bytes.
//!
//! The buffer is leased from the loop for each call that may write, with the limit that holds
//! during it (`channel::budget`). After each call and each flush the channel reports its pending
//! bytes to the loop, and returns an empty buffer.
//!
//! | file | step |
//! |---|---|
//! | `queued` | a message arrives from a handle or a broadcast |
//! | `encode` | it is encoded into the leased buffer, within its limit |
//! | `latest` | it replaces a waiting message with the same key |
//! | `overflow` | handling of a message that does not fit |
//! | `sent` | filters seal bytes, and the transport accepts them |
//! | `confirm` | the boundaries of messages, and the completions of writes |
//! | `writability` | the handler and other threads learn whether they may write |

mod confirm;
mod encode;
mod latest;
mod overflow;
mod queued;
mod sent;
mod writability;

use super::services::LoopServices;
use crate::{
    buffer::{OutboundBuffer, OutboundMark, WaterMark},
    channel::{
        budget::{Apart, OutboundLease},
        config::{ChannelConfig, Overflow},
    },
    error::{Error, Resource},
};
use bytes::Bytes;

/// The half of a channel that this end writes.
pub(crate) struct Outbound {
    /// The bytes that wait to be sent. `None` while there are none, except during a call.
    lease: Option<Box<OutboundLease>>,
    /// When the transport has last accepted bytes.
    last_written: u64,
    bytes: u64,
    messages: u64,
}

impl Outbound {
    pub(super) fn new(now: u64) -> Self {
        Outbound { lease: None, last_written: now, bytes: 0, messages: 0 }
    }

    /// Returns the number of bytes that the transport has accepted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of messages written and encoded.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns when the transport has last accepted bytes.
    #[inline]
    pub(crate) fn last_written(&self) -> u64 {
        self.last_written
    }

    /// Returns how many confirmations wait.
    pub(super) fn unanswered(&self) -> usize {
        self.lease.as_ref().map_or(0, |lease| lease.writes.unanswered())
    }

    // ---- the leased buffer ----

    #[inline]
    pub(crate) fn pending_bytes(&self) -> usize {
        self.lease.as_ref().map_or(0, |lease| lease.buffer.len())
    }

    /// Returns the weight that counts against the water marks: bytes, and an overhead per shared
    /// chunk.
    #[inline]
    pub(super) fn weight(&self) -> usize {
        self.lease.as_ref().map_or(0, |lease| lease.buffer.weight())
    }

    pub(crate) fn buffer(&self) -> Option<&OutboundBuffer> {
        self.lease.as_ref().map(|lease| &lease.buffer)
    }

    /// Leases a buffer for a call, with the limit that holds during it.
    #[inline]
    fn borrow(&mut self, services: &mut LoopServices, config: &ChannelConfig) {
        let lease = self.lease.get_or_insert_with(|| services.lease_outbound());
        lease.now = services.now;
        services.outbound.allow(lease, config);
    }

    /// Reports the pending bytes to the loop's budget. Returns an empty buffer to the loop.
    #[inline]
    pub(super) fn give_back(&mut self, services: &mut LoopServices) {
        let Some(lease) = &mut self.lease else { return };
        if !lease.buffer.is_empty() {
            services.outbound.count(lease);
        } else if let Some(lease) = self.lease.take() {
            services.return_outbound(lease);
        }
    }

    /// Drops the unsent bytes. Returns their number.
    pub(super) fn drop_unsent(&mut self, services: &mut LoopServices) -> usize {
        let Some(lease) = self.lease.take() else { return 0 };
        let dropped = lease.buffer.len();
        services.return_outbound(lease);
        dropped
    }

    /// Removes the bytes written since `mark`.
    fn rollback(&mut self, mark: OutboundMark) {
        if let Some(lease) = &mut self.lease {
            lease.buffer.rollback(mark);
        }
    }

    /// Returns the time of the phase during a call of the pipeline.
    fn leased_at(&self) -> Option<u64> {
        self.lease.as_ref().map(|lease| lease.now)
    }

    /// Returns the part of the loop's pending output that is counted for this channel.
    #[cfg(feature = "simulation")]
    pub(crate) fn counted(&self) -> usize {
        self.lease.as_ref().map_or(0, |lease| lease.counted())
    }

    // ---- its limit ----

    /// Returns the limit of pending bytes.
    pub(crate) fn limit(&self, config: &ChannelConfig) -> usize {
        self.lease.as_ref().map_or(config.max_outbound, |lease| lease.limit())
    }

    /// Returns the error of a write beyond the limit.
    pub(crate) fn full(&self, config: &ChannelConfig) -> Error {
        let channel = || Error::Full { resource: Resource::ChannelOutput, limit: config.max_outbound };
        self.lease.as_ref().map_or_else(channel, |lease| lease.full())
    }

    /// Returns the current water marks. They are lower than configured if the loop has little
    /// memory left.
    fn mark(&self, config: &ChannelConfig) -> WaterMark {
        self.lease.as_ref().map_or(config.water_mark, |lease| lease.mark(config))
    }

    /// Returns whether `more` bytes certainly reach neither the limit nor a mark.
    #[inline]
    fn has_certain_room(&self, more: usize) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.has_certain_room(more))
    }

    /// Lifts the limit until the current call returns.
    pub(crate) fn lift_limit(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.lift_limit();
        }
    }

    /// Restores the limit that `ChannelState::limit_for_message` has returned.
    pub(crate) fn restore_limit(&mut self, limit: usize) {
        if let Some(lease) = &mut self.lease {
            lease.restore_limit(limit);
        }
    }

    /// Lifts the limit for a message that was accepted when it was submitted. With `DropOldest`,
    /// messages are dropped for it instead.
    fn admit_queued(&mut self, config: &ChannelConfig) {
        if config.overflow != Overflow::DropOldest {
            self.admit();
        }
    }

    /// Lifts the limit for one message.
    fn admit(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.admit();
        }
    }

    // ---- messages for several channels ----

    /// Replaces the channel's buffer by a separate one without a limit. Returns the channel's
    /// buffer.
    pub(crate) fn begin_apart(&mut self) -> Option<Box<OutboundLease>> {
        let mut apart: Box<OutboundLease> = Box::default();
        apart.lift_limit();
        apart.apart = Apart::Shared;
        self.lease.replace(apart)
    }

    /// Refuses to encode the current message for several channels. Returns whether it is.
    pub(crate) fn refuse_apart(&mut self) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        let is_shared = matches!(lease.apart, Apart::Shared | Apart::Refused);
        lease.apart = match lease.apart {
            Apart::Shared | Apart::Refused => Apart::Refused,
            Apart::Alone | Apart::Stays => Apart::Stays,
            Apart::No => Apart::No,
        };
        is_shared
    }

    /// Restores the channel's buffer. Returns the bytes of the separate one, unless that was
    /// refused.
    pub(crate) fn end_apart(&mut self, own: Option<Box<OutboundLease>>) -> Option<Bytes> {
        let apart = std::mem::replace(&mut self.lease, own)?;
        (apart.apart != Apart::Refused).then(|| apart.buffer.into_bytes())
    }
}
