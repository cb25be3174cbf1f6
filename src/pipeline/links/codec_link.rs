//! The codec as the first link of a pipeline.

use super::pull::{Pull, StageEvent};
use crate::{
    Error, Result,
    channel::{ChannelState, DecodePass, MAX_EXTRA_MESSAGES, Push, SizeHint},
    pipeline::codec::Codec,
    sync::Random,
};
use bytes::Bytes;

/// The codec as the first link.
pub struct CodecLink<C>(pub(in crate::pipeline) C);

impl<C: Codec> Pull for CodecLink<C> {
    type Item = C::Read;

    #[inline(always)]
    fn pull<const LAST: bool>(
        &mut self,
        _: &mut ChannelState,
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
        let message = self.0.decode(input)?;
        if input.len() == before && message.is_some() {
            return Err(Error::other("the codec made a message of no bytes, and would do so for ever"));
        }
        Ok(message)
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.0.has_more()
    }

    fn tell_stages(&mut self, _: &mut ChannelState, _: &Random, _: StageEvent) -> Result {
        Ok(())
    }

    #[inline]
    fn encoding_key(&self) -> Option<u64> {
        self.0.encoding_key()
    }
}

impl<C: Codec> CodecLink<C> {
    /// Decodes the remaining bytes at the end of the stream, and bounds the messages of no bytes.
    #[inline(never)]
    fn pull_last(&mut self, input: &mut Bytes, pass: &mut DecodePass) -> Result<Option<C::Read>> {
        let before = input.len();
        let message = self.0.decode_last(input)?;
        if message.is_some() && input.len() == before && !pass.spend() {
            return Err(Error::other(format!(
                "at the end of the stream the codec made more than {MAX_EXTRA_MESSAGES} messages of no bytes"
            )));
        }
        Ok(message)
    }
}

impl<C: Codec> Push<C::Write> for CodecLink<C> {
    #[inline]
    fn push(&mut self, state: &mut ChannelState, message: C::Write) -> Result {
        // Each result is looked at where it comes from: to carry one along is to copy all that an
        // error could hold.
        let output = state.outbound_for_write()?;
        let mark = output.mark();
        if let Err(error) = self.0.encode(message, output) {
            return state.refuse(mark, error);
        }
        if !state.has_outbound_room(mark) {
            return state.refuse(mark, state.outbound_is_full());
        }
        Ok(())
    }

    fn encoded_len_hint(message: &C::Write) -> Option<usize> {
        C::encoded_len_hint(message)
    }

    fn size_hint(&self) -> SizeHint {
        |message| message.downcast_ref().and_then(C::encoded_len_hint)
    }
}
