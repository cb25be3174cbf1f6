//! Delivery of the messages of one pass to the handler.

use super::{super::Links, Assembled};
use crate::{
    channel::{ChannelState, DecodePass, LoopServices, Pending},
    error::Result,
    pipeline::handler::Handler,
};
use bytes::Bytes;

impl<L: Links, H: Handler<Read = L::Read, Write = L::Write>> Assembled<L, H> {
    /// Decodes `input` and hands each message to the handler; see
    /// [`ErasedPipeline::read`](crate::channel::ErasedPipeline::read).
    #[inline(always)]
    pub(super) fn deliver_pass(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result {
        if pass.is_last() {
            self.deliver_last(state, services, input, pass)?;
        } else if !input.is_empty() || self.links.has_more() {
            let before = state.inbound.messages();
            let mut look_at = before + 1 + u64::from(services.io_time.left());
            let delivered = self.deliver(state, services, input, pass, &mut look_at);
            let read = state.inbound.messages();
            services.tally.messages_read += read - before;
            // The last message of a read is not a unit of its own.
            if read > before + 1 || pass.timed_out() {
                // When the time is up nothing is left.
                let left = if pass.timed_out() { 0 } else { look_at.saturating_sub(read) };
                services.io_time.set_left(u32::try_from(left).unwrap_or(u32::MAX));
            }
            delivered?;
        }
        // A spent pass leaves messages in the links.
        if pass.is_complete() && input.is_empty() && state.may_complete() && !pass.is_spent() {
            pass.set_completed();
            let stages = self.complete_stages(state, services);
            let (handler, mut ctx) = self.split(state, services);
            stages.and(handler.read_complete(&mut ctx))?;
        }
        Ok(())
    }

    /// Delivers messages while there is input or a queued message, of which the caller has seen
    /// one. The clock is not read before message number `look_at` of the channel.
    #[inline(always)]
    #[expect(
        clippy::question_mark,
        reason = "the operator copies the error, which costs three instructions a message"
    )]
    fn deliver(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
        look_at: &mut u64,
    ) -> Result {
        while state.status.may_deliver() {
            let Some(message) = self.links.pull::<false>(state, services, input, pass)? else { break };
            if let Err(error) = self.hand_over(state, services, message) {
                return Err(error);
            }
            if input.is_empty() && !self.links.has_more() {
                break;
            }
            if state.inbound.messages() >= *look_at {
                *look_at = look_at_time(state, services, pass);
            }
        }
        Ok(())
    }

    /// Delivers the last messages of a stream. No later turn could, so the time is not limited.
    #[cold]
    fn deliver_last(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result {
        while state.status.may_deliver() {
            let Some(message) = self.links.pull::<true>(state, services, input, pass)? else { break };
            services.tally.messages_read += 1;
            self.hand_over(state, services, message)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn hand_over(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: H::Read,
    ) -> Result {
        state.status.note_message();
        state.inbound.count_message();
        let (handler, mut ctx) = self.split(state, services);
        handler.read(&mut ctx, message)
    }
}

/// Reads the clock, and ends the pass if the time for I/O is up. Returns the number of the message
/// after which to read the clock again.
#[cold]
fn look_at_time(state: &mut ChannelState, services: &mut LoopServices, pass: &mut DecodePass) -> u64 {
    services.io_time.set_left(0);
    if services.io_is_over() {
        pass.time_out();
        state.status.set(Pending::UNDECODED);
    }
    state.inbound.messages() + 1 + u64::from(services.io_time.left())
}
