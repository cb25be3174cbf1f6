//! The end of the peer's stream, behind its last messages.

use super::super::{ChannelCore, InputHalf, ReadDemand, links::Batch, services::LoopServices};
use crate::channel::{DecodePass, Pending, Readiness, event::Event};

impl ChannelCore {
    /// Handles the end of the peer's stream: decodes the kept bytes for the last time, then closes
    /// the channel, unless half-close keeps its output open.
    pub(crate) fn handle_end(&mut self, services: &mut LoopServices) {
        let mut rest = self.state.inbound.take_undecoded().into_bytes();
        // A flush and auto-read off interrupt the delivery, but no later read resumes it. The
        // driver flushes soon.
        let mut flush = false;
        let mut pass = DecodePass::new(Batch::Last);
        loop {
            let (before, messages) = (rest.len(), services.tally.messages_read);
            self.state.status.grant_rest();
            self.state.status.unset(Pending::UNDECODED);
            self.deliver(services, &mut rest, &mut pass);
            let flushes = self.state.status.take(Pending::FLUSH);
            flush |= flushes;
            let paused = self.state.status.is_open() && !self.state.status.may_deliver();
            // Messages that consume no byte are progress too; the pass bounds their number.
            let progress = rest.len() < before || services.tally.messages_read > messages;
            if !(flushes || paused && progress) {
                break;
            }
        }
        if flush {
            self.state.status.set(Pending::FLUSH);
        }
        self.state.status.end_grant(false);
        // For a replacement pipeline.
        self.state.inbound.keep(rest.into());
        let unfinished =
            self.state.status.has(Pending::UNDECODED) || self.state.status.has(ReadDemand::STAGE_PAUSED);
        if unfinished && self.state.status.is_open() {
            // The pipeline has more messages than one pass delivers, or a stage pauses reading.
            // Read the end again after that.
            self.state.status.set(Readiness::MAYBE_READABLE);
            self.state.status.want_read();
            self.state.want_attention(services);
            return;
        }
        let replaced = services.replaced;
        if self.state.status.is_open() {
            self.event(services, Event::ReadComplete);
        }
        if self.state.config.half_close && self.state.status.is_open() && services.replaced == replaced {
            self.state.status.set_input(InputHalf::Ended);
            self.event(services, Event::ReadClosed);
        }
        if services.replaced != replaced && self.state.status.is_open() {
            // The end is read again for the replacement, after the remaining bytes.
            self.state.status.set(Readiness::MAYBE_READABLE);
            self.state.want_attention(services);
            return;
        }
        if !self.state.config.half_close || self.state.status.output_has_ended() {
            self.close_behind_peer();
        }
        self.state.want_attention(services);
    }
}
