//! A stage behind the links before it.

use super::{Links, StageEvent, sealed::Sealed, shared::combine};
use crate::{
    channel::{ChannelState, DecodePass, LoopServices, MAX_STAGES, continues},
    error::{Error, Result},
    pipeline::{
        StageContext,
        stage::{PeriodicStageTask, Stage, StageTask},
    },
};
use bytes::Bytes;
use std::{any::Any, ops::ControlFlow};

/// The [`Links`] that consist of other links `L` and a stage behind them, from
/// [`PipelineBuilder::stage`](crate::pipeline::PipelineBuilder::stage).
pub struct Staged<L, S> {
    pub(in crate::pipeline) before: L,
    pub(in crate::pipeline) stage: S,
}

impl<L, S> Sealed for Staged<L, S> {}

impl<L: Links, S: Stage<ReadIn = L::Read, WriteOut = L::Write>> Staged<L, S> {
    /// Splits off the stage, with a context to call it with.
    #[inline(always)]
    fn split<'a>(
        &'a mut self,
        state: &'a mut ChannelState,
        services: &'a mut LoopServices,
    ) -> (&'a mut S, StageContext<'a, S>) {
        const { assert!(Self::STAGES <= MAX_STAGES, "a pipeline has at most 32 stages") };
        let Staged { before, stage } = self;
        (stage, StageContext { before, state, services, position: Self::STAGES })
    }
}

impl<L: Links, S: Stage<ReadIn = L::Read, WriteOut = L::Write>> Links for Staged<L, S> {
    type Read = S::ReadOut;
    type Write = S::WriteIn;

    const STAGES: u32 = L::STAGES + 1;

    #[inline]
    fn pull<const LAST: bool>(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result<Option<S::ReadOut>> {
        loop {
            if self.stage.has_more() {
                if !pass.spend() {
                    break;
                }
                let (stage, mut ctx) = self.split(state, services);
                match stage.read_more(&mut ctx) {
                    Ok(Some(out)) => return Ok(Some(out)),
                    Ok(None) => {}
                    Err(error) => {
                        state.status.note_queued_failure();
                        return Err(error);
                    }
                }
                if !state.status.may_deliver() {
                    break;
                }
            }
            if input.is_empty() && !LAST && !self.before.has_more() {
                break;
            }
            let Some(message) = self.before.pull::<LAST>(state, services, input, pass)? else { break };
            let (stage, mut ctx) = self.split(state, services);
            match stage.read(&mut ctx, message) {
                Ok(Some(out)) => return Ok(Some(out)),
                Ok(None) => {}
                Err(error) => {
                    state.status.note_queued_failure();
                    return Err(error);
                }
            }
            if !state.status.may_deliver() {
                break;
            }
        }
        Ok(None)
    }

    #[inline]
    fn push_message(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: S::WriteIn,
    ) -> Result {
        // If the stage writes several messages for one, all of them are written or none.
        let mark = state.outbound_for_write()?.mark();
        let limit = state.limit_for_message();
        let writing = state.begin_stage_write(mark, limit);
        let (stage, mut ctx) = self.split(writing.state, services);
        let written = stage.write(&mut ctx, message);
        writing.end();
        match written {
            Ok(()) => {
                state.outbound.restore_limit(limit);
                Ok(())
            }
            Err(error) => {
                state.outbound.restore_limit(limit);
                self.before.forget_encoded();
                state.refuse(mark, error)
            }
        }
    }

    fn encoded_len_hint(message: &S::WriteIn) -> Option<usize> {
        S::encoded_len_hint(message, L::encoded_len_hint)
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.stage.has_more() || self.before.has_more()
    }

    fn has_unfinished_output(&self) -> bool {
        self.stage.has_unfinished_output() || self.before.has_unfinished_output()
    }

    #[inline(always)]
    fn stage_event(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        event: StageEvent,
    ) -> Result {
        let before = self.before.stage_event(state, services, event);
        let (stage, mut ctx) = self.split(state, services);
        let this = match event {
            StageEvent::Active => stage.active(&mut ctx),
            StageEvent::ReadComplete => stage.read_complete(&mut ctx),
            StageEvent::Writability(writable) => stage.writability_changed(&mut ctx, writable),
            StageEvent::ReadClosed => stage.read_closed(&mut ctx),
            StageEvent::Timer => stage.timer(&mut ctx),
            StageEvent::Shutdown => stage.shutdown(&mut ctx),
            StageEvent::Failed => stage.failed(&mut ctx),
            StageEvent::Inactive => stage.inactive(&mut ctx),
        };
        before.and(this)
    }

    fn stage_error(&mut self, state: &mut ChannelState, services: &mut LoopServices, error: Error) -> Result {
        match self.before.stage_error(state, services, error) {
            Ok(()) => Ok(()),
            Err(error) => {
                let (stage, mut ctx) = self.split(state, services);
                stage.error(&mut ctx, error)
            }
        }
    }

    fn run_stage_task(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        task: Box<dyn Any>,
    ) -> Result<Result, Box<dyn Any>> {
        // The position tells apart two stages of the same type.
        match task.downcast::<StageTask<S>>() {
            Ok(task) if task.position == Self::STAGES => {
                let (stage, mut ctx) = self.split(state, services);
                Ok((task.task)(stage, &mut ctx))
            }
            Ok(task) => self.before.run_stage_task(state, services, task),
            Err(task) => self.before.run_stage_task(state, services, task),
        }
    }

    fn run_periodic_stage_task(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        task: &mut dyn Any,
    ) -> Option<Result<ControlFlow<()>>> {
        match task.downcast_mut::<PeriodicStageTask<S>>() {
            Some(task) if task.position == Self::STAGES => {
                let (stage, mut ctx) = self.split(state, services);
                Some(continues((task.task)(stage, &mut ctx)))
            }
            _ => self.before.run_periodic_stage_task(state, services, task),
        }
    }

    #[inline]
    fn encoding_key(&self) -> Option<u64> {
        Some(combine(self.before.encoding_key()?, self.stage.encoding_key()?))
    }

    fn forget_encoded(&mut self) {
        self.before.forget_encoded();
    }
}
