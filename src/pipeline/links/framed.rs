//! The codec as the first link of a pipeline.

use super::{Links, StageEvent, sealed::Sealed};
use crate::{
    channel::{ChannelState, DecodePass, LoopServices, MAX_EXTRA_MESSAGES},
    error::{Error, Result},
    pipeline::codec::Codec,
};
use bytes::Bytes;
use std::{any::Any, ops::ControlFlow};

/// The [`Links`] that consist of a codec only, from [`Pipeline::codec`](crate::Pipeline::codec).
pub struct Framed<C>(pub(in crate::pipeline) C);

impl<C> Sealed for Framed<C> {}

impl<C: Codec> Links for Framed<C> {
    type Read = C::Read;
    type Write = C::Write;

    const STAGES: u32 = 0;

    #[inline(always)]
    fn pull<const LAST: bool>(
        &mut self,
        _: &mut ChannelState,
        _: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result<Option<C::Read>> {
        if self.0.has_more() {
            if !pass.spend() {
                return Ok(None);
            }
            let message = self.0.decode_more()?;
            if message.is_some() || input.is_empty() && !LAST {
                return Ok(message);
            }
        }
        if LAST {
            return self.pull_last(input, pass);
        }
        let before = input.len();
        let Some(message) = self.0.decode(input)? else { return Ok(None) };
        if input.len() == before {
            return Err(Error::other("the codec returned a message without consuming input"));
        }
        Ok(Some(message))
    }

    #[inline(always)]
    fn push_message(&mut self, state: &mut ChannelState, _: &mut LoopServices, message: C::Write) -> Result {
        // Each result is tested where it comes from. Passing it along would copy the whole
        // `Result`.
        if state.drops_oldest() {
            self.0.forget_encoded();
        }
        let output = state.outbound_for_write()?;
        let mark = output.mark();
        let encoding = output.begin_encoding(mark);
        let encoded = self.0.encode(message, encoding.output);
        encoding.end();
        if let Err(error) = encoded {
            return state.refuse(mark, error);
        }
        if !state.has_outbound_room(mark) {
            self.0.forget_encoded();
            return state.refuse(mark, state.outbound_is_full());
        }
        Ok(())
    }

    fn encoded_len_hint(message: &C::Write) -> Option<usize> {
        C::encoded_len_hint(message)
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.0.has_more()
    }

    fn has_unfinished_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn stage_event(&mut self, _: &mut ChannelState, _: &mut LoopServices, _: StageEvent) -> Result {
        Ok(())
    }

    fn stage_error(&mut self, _: &mut ChannelState, _: &mut LoopServices, error: Error) -> Result {
        Err(error)
    }

    fn run_stage_task(
        &mut self,
        _: &mut ChannelState,
        _: &mut LoopServices,
        task: Box<dyn Any>,
    ) -> Result<Result, Box<dyn Any>> {
        Err(task)
    }

    fn run_periodic_stage_task(
        &mut self,
        _: &mut ChannelState,
        _: &mut LoopServices,
        _: &mut dyn Any,
    ) -> Option<Result<ControlFlow<()>>> {
        None
    }

    #[inline]
    fn encoding_key(&self) -> Option<u64> {
        self.0.encoding_key()
    }

    fn forget_encoded(&mut self) {
        self.0.forget_encoded();
    }
}

impl<C: Codec> Framed<C> {
    /// Decodes the remaining bytes at the end of the stream, and bounds the messages of no bytes.
    #[inline(never)]
    fn pull_last(&mut self, input: &mut Bytes, pass: &mut DecodePass) -> Result<Option<C::Read>> {
        let before = input.len();
        let message = self.0.decode_last(input)?;
        if message.is_some() && input.len() == before && !pass.spend() {
            return Err(Error::other(format!(
                "at the end of the stream the codec made more than {MAX_EXTRA_MESSAGES} messages \
                 without input"
            )));
        }
        Ok(message)
    }
}
