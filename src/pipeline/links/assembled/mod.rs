//! A finished pipeline, called through one virtual call per event.

mod delivery;

use super::{Links, StageEvent, shared::write_shared};
use crate::{
    channel::{
        ChannelState, CloseCause, DecodePass, EncodingMemo, ErasedPipeline, Event, LoopServices, Pending,
        PipelineTypes, Push, SharedMessage,
    },
    error::{Error, Result, caught, drop_guarded},
    log_throttle::{REPLACED, log_throttled},
    pipeline::{
        Context,
        handler::{Handler, run_as, run_as_any, run_periodic_as, run_periodic_as_any},
    },
    sync::TypeName,
};
use bytes::Bytes;
use log::Level;
use std::{
    any::{Any, TypeId},
    ops::ControlFlow,
};

/// All links of a pipeline and its handler.
pub(in crate::pipeline) struct Assembled<L, H> {
    pub(in crate::pipeline) links: L,
    pub(in crate::pipeline) handler: H,
}

impl<L: Links, H: Handler<Read = L::Read, Write = L::Write>> Assembled<L, H> {
    #[inline]
    fn split<'a>(
        &'a mut self,
        state: &'a mut ChannelState,
        services: &'a mut LoopServices,
    ) -> (&'a mut H, Context<'a, H>) {
        (&mut self.handler, Context::new(&mut self.links, state, services))
    }

    /// Passes an event to the stages.
    fn stage_event(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        event: StageEvent,
    ) -> Result {
        let stages = self.links.stage_event(state, services, event);
        self.announce_more(state);
        stages
    }

    /// Lets the stages write a last message if an error closes the channel.
    #[cold]
    fn conclude(&mut self, state: &mut ChannelState, services: &mut LoopServices, closes: bool) {
        // A broken connection, or a time limit.
        if !state.close_cause().is_clean() {
            return;
        }
        if closes && state.status.is_open() {
            // The core records the error as the cause.
            state.request_close(CloseCause::Clean);
        }
        state.before_graceful_close(|state| {
            let _ = self.links.stage_event(state, services, StageEvent::Failed);
        });
    }

    /// Passes `read_complete` to the stages.
    ///
    /// Announces only messages that are queued in this event: each delivery ends with it, so a link
    /// that promises messages and has none would be asked endlessly.
    #[inline(always)]
    fn complete_stages(&mut self, state: &mut ChannelState, services: &mut LoopServices) -> Result {
        let had_more = self.links.has_more();
        let stages = self.links.stage_event(state, services, StageEvent::ReadComplete);
        if !had_more {
            self.announce_more(state);
        }
        stages
    }

    /// Makes the driver deliver messages that stages have queued outside of `read`.
    #[inline]
    fn announce_more(&self, state: &mut ChannelState) {
        if self.links.has_more() {
            state.status.set(Pending::UNDECODED);
        }
    }
}

impl<L: Links, H: Handler<Read = L::Read, Write = L::Write>> ErasedPipeline for Assembled<L, H> {
    fn read(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result {
        self.deliver_pass(state, services, input, pass)
    }

    fn has_more(&self) -> bool {
        self.links.has_more()
    }

    fn has_unfinished_output(&self) -> bool {
        self.links.has_unfinished_output()
    }

    fn event(&mut self, state: &mut ChannelState, services: &mut LoopServices, event: Event) -> Result {
        let stages = match &event {
            Event::Active => self.stage_event(state, services, StageEvent::Active),
            Event::ReadComplete => self.complete_stages(state, services),
            // Messages that are queued in these two events are not delivered.
            Event::ReadClosed => self.links.stage_event(state, services, StageEvent::ReadClosed),
            Event::Inactive => self.links.stage_event(state, services, StageEvent::Inactive),
            Event::Writability(writable) => {
                self.stage_event(state, services, StageEvent::Writability(*writable))
            }
            Event::StageTimer => return self.stage_event(state, services, StageEvent::Timer),
            Event::Shutdown => self.stage_event(state, services, StageEvent::Shutdown),
            Event::Idle(_) | Event::Error(_) | Event::Panicked(_) => Ok(()),
        };
        // The text of a panic may also be an ordinary error: that of offloaded work.
        let panicked = matches!(event, Event::Panicked(_));
        if let Event::Error(error) | Event::Panicked(error) = event {
            let error = self.links.stage_error(state, services, error);
            if L::STAGES > 0 {
                // The error may be a panic of `has_more`, and the handler must still receive it.
                caught(|| self.announce_more(state));
            }
            let Err(error) = error else { return Ok(()) };
            let (handler, mut ctx) = self.split(state, services);
            let result = handler.error(&mut ctx, error);
            if L::STAGES > 0 {
                self.conclude(state, services, panicked || result.is_err());
            }
            return result;
        }
        // The handler is called also if a stage fails.
        let (handler, mut ctx) = self.split(state, services);
        stages.and(match event {
            Event::Active => handler.active(&mut ctx),
            Event::ReadComplete => handler.read_complete(&mut ctx),
            Event::ReadClosed => handler.read_closed(&mut ctx),
            Event::Writability(writable) => handler.writability_changed(&mut ctx, writable),
            Event::Idle(event) => handler.idle(&mut ctx, event),
            Event::Shutdown => handler.shutdown(&mut ctx),
            Event::Inactive => handler.inactive(&mut ctx),
            Event::Error(_) | Event::Panicked(_) | Event::StageTimer => Ok(()),
        })
    }

    fn write(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: Box<dyn Any + Send>,
    ) -> Result {
        match message.downcast::<H::Write>() {
            Ok(message) => self.links.push(state, services, *message),
            Err(message) => refuse(message),
        }
    }

    fn write_latest(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        key: u64,
        message: Box<dyn Any + Send>,
    ) -> Result {
        match message.downcast::<H::Write>() {
            Ok(message) => self.links.push_latest(state, services, key, *message),
            Err(message) => refuse(message),
        }
    }

    fn write_shared(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
    ) -> Result {
        write_shared(&mut self.links, state, services, message, memo)
    }

    fn run(&mut self, state: &mut ChannelState, services: &mut LoopServices, task: Box<dyn Any>) -> Result {
        let task = match self.links.run_stage_task(state, services, task) {
            Ok(result) => {
                self.announce_more(state);
                return result;
            }
            Err(task) => task,
        };
        let (handler, mut ctx) = self.split(state, services);
        let run = run_as(task, handler, &mut ctx).or_else(|task| run_as_any(task, &mut ctx));
        run.unwrap_or_else(|task| {
            // The sender raced with a replacement of the pipeline, which is not an error.
            let id = ctx.id();
            log_throttled!(
                ctx.services,
                REPLACED,
                Level::Debug,
                "channel {id}: dropped a task for a pipeline that was replaced"
            );
            drop_guarded(task);
            Ok(())
        })
    }

    fn run_periodic(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        task: &mut dyn Any,
    ) -> Result<ControlFlow<()>> {
        if let Some(result) = self.links.run_periodic_stage_task(state, services, task) {
            self.announce_more(state);
            return result;
        }
        let (handler, mut ctx) = self.split(state, services);
        run_periodic_as(task, handler, &mut ctx)
            .or_else(|| run_periodic_as_any(task, &mut ctx))
            .unwrap_or(Ok(ControlFlow::Break(())))
    }

    fn forget_encoded(&mut self) {
        self.links.forget_encoded();
    }

    #[inline]
    fn handler_type(&self) -> TypeName {
        std::any::type_name::<H>
    }

    fn types(&self) -> PipelineTypes {
        PipelineTypes {
            message: TypeId::of::<H::Write>(),
            handler: TypeId::of::<H>(),
            size_hint: self.links.size_hint(),
        }
    }
}

/// Drops a message of a handle that belongs to an earlier pipeline.
fn refuse(message: Box<dyn Any + Send>) -> Result {
    drop_guarded(message);
    Err(Error::PipelineReplaced)
}
