//! The bytes of the peer and their end, decoded and delivered.
//!
//! Between two messages the core checks the channel. A close, auto-read off, a flush and a
//! replacement pipeline take effect there, and the remaining bytes are not lost. They stay in the
//! channel or with the driver.
//!
//! A read that empties the transport is one call into the pipeline: `read_complete` is called right
//! after the last message. It is a separate call if something else comes first: a flush, a change
//! of writability, a pause, an error, or kept bytes, also those of filters. It is also separate if
//! the channel has a wire log. The order of callbacks is the same.
//!
//! Invariants: each message comes once, in the order of its bytes. A codec that fails without
//! consuming a byte is called once more, and then the channel closes. The channel also closes if
//! queued messages fail again and again, or pipelines replace one another without progress. Runs on
//! the channel's loop. Does not read the transport.

use super::super::{ChannelCore, life::AT_ONCE, links::Batch, services::LoopServices, status::Memory};
use crate::{
    channel::{
        DecodePass, Pending, close_cause::CloseCause, event::Event, filter::MAX_KEPT, undecoded::InputMemory,
    },
    error::{PeerError, caught},
    log_throttle::{STUCK, log_throttled},
};
use bytes::Bytes;
use log::Level;

impl ChannelCore {
    /// Decodes `input` and delivers its messages. `input` starts with the kept bytes. Calls `flush`
    /// between two messages if the handler has requested one. Keeps the bytes that cannot be
    /// decoded yet.
    ///
    /// Returns whether `read_complete` was called, which happens only if the batch is complete. If
    /// not, the driver calls [`ChannelCore::handle_read_complete`] at the end of the burst. The
    /// driver also calls [`ChannelCore::request_attention`].
    // Inlined, because the closure and the results are the caller's.
    #[inline(always)]
    pub(crate) fn handle_input(
        &mut self,
        services: &mut LoopServices,
        mut input: Bytes,
        memory: InputMemory,
        batch: Batch,
        mut flush: impl FnMut(&mut Self, &mut LoopServices),
    ) -> bool {
        self.state.status.unset(Pending::UNDECODED);
        self.state.grant_read();
        let (length, messages) = (input.len(), services.tally.messages_read);
        let mut pass = DecodePass::new(batch);
        loop {
            self.deliver(services, &mut input, &mut pass);
            if !self.state.status.has(Pending::FLUSH) {
                break;
            }
            flush(self, services);
            if pass.completed() || input.is_empty() && !self.state.status.has(Pending::UNDECODED) {
                break;
            }
            // Set for queued messages of the pipeline, which this round delivers.
            if !pass.timed_out() {
                self.state.status.unset(Pending::UNDECODED);
            }
        }
        if self.state.status.is_open() && (!input.is_empty() || self.state.status.has(Memory::LIMITED)) {
            let moved = input.len() < length;
            self.keep(services, input, memory, moved);
        }
        self.state.status.end_grant(services.tally.messages_read == messages);
        pass.completed()
    }

    /// Delivers messages until something interrupts the pass or no whole message is left. The rest
    /// of `input` is not decoded.
    ///
    /// Sets `UNDECODED` if delivery stopped while the pipeline has queued messages.
    #[inline(always)]
    pub(super) fn deliver(&mut self, services: &mut LoopServices, input: &mut Bytes, pass: &mut DecodePass) {
        while self.state.status.may_deliver() {
            let (before, messages) = (input.len(), services.tally.messages_read);
            let replaced = services.replaced;
            let failed = self
                .call_unlisted(services, |links, state, services| links.read(state, services, input, pass));
            if input.len() < before {
                self.state.status.unset(Memory::STUCK);
            }
            if services.replaced != replaced {
                let made_progress = input.len() < before || services.tally.messages_read > messages;
                if pass.count_replacement(made_progress) >= AT_ONCE {
                    self.refuse_replacements(services);
                    break;
                }
                // The rest belongs to the replacement pipeline. At the end of the stream, its codec
                // decodes an empty input as well.
                if input.is_empty() && !self.has_more() && !(pass.is_last() && pass.spend()) {
                    break;
                }
                continue;
            }
            if !self.state.status.has(Memory::SERVED) {
                self.note_if_served(services, messages);
            }
            if !failed {
                break;
            }
            // `error` may keep the channel open. A codec that fails without consuming a byte will
            // fail again.
            if input.is_empty() && !pass.is_last() && !self.has_more() {
                break;
            }
            let is_stuck = input.len() == before && services.tally.messages_read == messages;
            if is_stuck && self.stuck(services) {
                break;
            }
        }
        let interrupted = pass.is_spent() || !self.state.status.may_deliver();
        if interrupted && (pass.timed_out() || self.has_more()) {
            self.state.status.set(Pending::UNDECODED);
        } else {
            self.state.status.unset(Pending::UNDECODED);
        }
    }

    /// Records the first message, if there were `messages` before the last call.
    #[cold]
    fn note_if_served(&mut self, services: &LoopServices, messages: u64) {
        if services.tally.messages_read > messages {
            self.state.note_first_message();
        }
    }

    /// Returns whether the pipeline has queued messages. A panic counts as `true`: the next
    /// delivery panics again and closes the channel.
    pub(in crate::channel::core) fn has_more(&self) -> bool {
        if !self.state.status.is_open() {
            return false;
        }
        let mut more = true;
        caught(|| more = self.links.has_more());
        more
    }

    /// Records that decoding failed without consuming a byte. Closes the channel, and returns
    /// `true`, if it will fail again.
    #[cold]
    fn stuck(&mut self, services: &mut LoopServices) -> bool {
        let is_stuck = self.state.status.note_failure();
        if is_stuck {
            let id = self.state.id();
            log_throttled!(
                services,
                STUCK,
                Level::Warn,
                "channel {id}: the codec fails without consuming a byte; closing"
            );
            self.state.request_close(CloseCause::Failed);
            self.state.want_attention(services);
        }
        is_stuck
    }

    /// Keeps the undecoded rest for the next read. `moved`: the codec consumed bytes in this read.
    #[inline(never)]
    fn keep(&mut self, services: &mut LoopServices, rest: Bytes, memory: InputMemory, moved: bool) {
        self.state.note_kept(services, rest.len(), moved);
        if rest.is_empty() {
            return;
        }
        let limit = self.state.config.max_inbound;
        // A spent pass stops decoding although the channel may deliver.
        let starved = self.state.status.may_deliver() && !self.state.status.has(Pending::UNDECODED);
        if !starved {
            // The peer did not cause this, and it is bounded: nothing is read before this is
            // decoded.
            self.state.status.set(Pending::UNDECODED);
        } else if rest.len() > limit {
            let length = rest.len() as u64;
            self.fail(services, PeerError::TooLong { what: "undecoded input", length, limit }.into());
            self.state.request_close(CloseCause::Failed);
            self.after(services);
            return;
        }
        self.state.inbound.keep(services.spare_box.keep(memory.keep(rest, starved)));
    }

    /// Checks the number of bytes kept in the channel's filters, after each read. Their limit does
    /// not depend on how many plaintext bytes wait, and is never less than a record of a filter.
    /// Otherwise the result would depend on where the peer's segments end.
    #[inline]
    pub(crate) fn handle_filtered_input(&mut self, services: &mut LoopServices) {
        if self.state.status.has(Memory::LIMITED) || self.state.extras.filters_have_kept() {
            self.check_filtered_input(services);
        }
    }

    #[inline(never)]
    fn check_filtered_input(&mut self, services: &mut LoopServices) {
        if !self.state.status.is_open() || !self.state.status.is_active() {
            return;
        }
        self.state.note_kept(services, self.state.inbound.undecoded().len(), false);
        let (kept, limit) =
            (self.state.extras.kept_in_filters(), self.state.config.max_inbound.max(MAX_KEPT));
        if kept > limit {
            let (what, length) = ("input of a filter", kept as u64);
            self.fail(services, PeerError::TooLong { what, length, limit }.into());
            self.state.request_close(CloseCause::Failed);
            self.after(services);
        }
    }

    /// Calls `read_complete`.
    pub(crate) fn handle_read_complete(&mut self, services: &mut LoopServices) {
        self.event(services, Event::ReadComplete);
    }
}
