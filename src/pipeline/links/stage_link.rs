//! A stage behind the links before it.

use super::{
    pull::{Pull, StageEvent},
    shared::combine,
};
use crate::{
    Result,
    channel::{ChannelState, DecodePass, Push, SizeHint},
    pipeline::stage::{Stage, StageContext},
    sync::Random,
};
use bytes::Bytes;

/// A stage behind the links before it.
pub struct StageLink<P, S> {
    pub(in crate::pipeline) before: P,
    pub(in crate::pipeline) stage: S,
}

impl<S: Stage, P: Pull<Item = S::ReadIn> + Push<S::WriteOut>> Pull for StageLink<P, S> {
    type Item = S::ReadOut;

    #[inline]
    fn pull<const LAST: bool>(
        &mut self,
        state: &mut ChannelState,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result<Option<S::ReadOut>> {
        loop {
            if self.stage.has_more() {
                if !pass.spend() {
                    break;
                }
                let mut ctx = StageContext { before: &mut self.before, state, random: None };
                if let Some(out) = self.stage.read_more(&mut ctx)? {
                    return Ok(Some(out));
                }
                if !state.status.may_deliver() {
                    break;
                }
            }
            if input.is_empty() && !LAST && !self.before.has_more() {
                break;
            }
            let Some(message) = self.before.pull::<LAST>(state, input, pass)? else { break };
            let mut ctx = StageContext { before: &mut self.before, state, random: None };
            if let Some(out) = self.stage.read(&mut ctx, message)? {
                return Ok(Some(out));
            }
            if !state.status.may_deliver() {
                break;
            }
        }
        Ok(None)
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.stage.has_more() || self.before.has_more()
    }

    fn tell_stages(&mut self, state: &mut ChannelState, random: &Random, event: StageEvent) -> Result {
        let before = self.before.tell_stages(state, random, event);
        let mut ctx = StageContext { before: &mut self.before, state, random: Some(random) };
        let this = match event {
            StageEvent::Active => self.stage.active(&mut ctx),
            StageEvent::Timer => self.stage.timer(&mut ctx),
        };
        before.and(this)
    }

    #[inline]
    fn encoding_key(&self) -> Option<u64> {
        Some(combine(self.before.encoding_key()?, self.stage.encoding_key()?))
    }
}

impl<S: Stage, P: Push<S::WriteOut>> Push<S::WriteIn> for StageLink<P, S> {
    #[inline]
    fn push(&mut self, state: &mut ChannelState, message: S::WriteIn) -> Result {
        // If the stage writes several messages for one, all of them are written or none.
        let mark = state.outbound_for_write()?.mark();
        let limit = state.limit_for_message();
        match self.stage.write(&mut StageContext { before: &mut self.before, state, random: None }, message) {
            Ok(()) => {
                state.restore_limit(limit);
                Ok(())
            }
            Err(error) => {
                state.restore_limit(limit);
                state.refuse(mark, error)
            }
        }
    }

    fn encoded_len_hint(message: &S::WriteIn) -> Option<usize> {
        S::encoded_len_hint(message, P::encoded_len_hint)
    }

    fn size_hint(&self) -> SizeHint {
        |message| message.downcast_ref().and_then(Self::encoded_len_hint)
    }
}
