//! Whether a channel reads: the demand of the pipeline and of the filters.
//!
//! Auto-read and requested reads control delivery to the pipeline. Filters read for themselves
//! until they are established, regardless of the pipeline's demand.

use super::super::{
    ChannelState, ReadDemand,
    services::LoopServices,
    status::{Memory, Status},
};
use crate::channel::{Pending, Readiness, shaping::Direction};

impl ChannelState {
    /// Returns whether there is input, here or in the transport, that may be read now without an
    /// event.
    #[inline]
    pub(crate) fn wants_read(&self) -> bool {
        let readable = self.status.has(Readiness::MAYBE_READABLE) && !self.is_held_up(Direction::Read);
        (self.status.has(Pending::UNDECODED) || readable)
            && self.status.may_read()
            && !self.status.input_ended()
            && self.status.is_open()
            || readable && self.filters_read()
    }

    /// Returns whether the transport may be read, for the pipeline or for the filters.
    #[inline]
    pub(crate) fn may_read(&self) -> bool {
        self.status.may_read() || self.filters_read()
    }

    /// Returns whether filters read for themselves, regardless of the pipeline's demand. A channel
    /// that closes completes a handshake for which messages wait.
    #[inline]
    pub(crate) fn filters_read(&self) -> bool {
        self.extras.are_used() && self.filters_read_now()
    }

    #[cold]
    fn filters_read_now(&self) -> bool {
        self.extras.filters().is_some_and(|filters| filters.read_for_themselves())
            && (self.status.is_open() || self.completes_handshake())
    }

    /// Returns whether input is read for the pipeline.
    #[inline]
    pub(in crate::channel) fn pipeline_reads(&self) -> bool {
        self.status.is_open() && self.status.may_read()
    }

    /// Grants the requested read, if any, to the bytes that are decoded next.
    #[inline]
    pub(super) fn grant_read(&mut self) {
        if self.status.has(ReadDemand::WANTED) {
            self.status.grant_read(self.config.one_message_per_read);
        }
    }

    /// Returns whether `read_complete` may be called right behind a message: nothing that the
    /// handler did has to happen before it, and nothing logs the order of the callbacks.
    #[inline]
    pub(crate) fn may_complete(&self) -> bool {
        self.status.may_complete() && self.extras.wire_log().is_none() && !self.has_flipped()
    }

    /// Makes a change after which the channel may read. If it does so only now, its time limits on
    /// input restart: while it did not read, the peer could not be late.
    #[inline]
    pub(crate) fn let_read(&mut self, now: u64, change: impl FnOnce(&mut Status)) {
        let was_paused = self.status.has(Memory::LIMITED) && !self.may_read();
        change(&mut self.status);
        if was_paused && self.may_read() {
            self.note_resumed(now);
        }
    }

    /// Resumes reading after held input has dropped below the low mark, unless it is paused again
    /// by now.
    pub(in crate::channel::core) fn release(&mut self, services: &mut LoopServices) {
        if self.shared.get().is_some_and(|shared| shared.holding.is_paused()) {
            return;
        }
        self.let_read(services.now, |status| status.unset(ReadDemand::INPUT_HELD));
        self.want_attention(services);
    }
}
