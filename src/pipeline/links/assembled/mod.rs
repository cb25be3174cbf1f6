//! A whole pipeline behind one virtual call per event.

mod delivery;

use super::{
    pull::{Pull, StageEvent},
    shared::write_shared,
};
use crate::{
    Error, Result,
    channel::{
        ChannelState, DecodePass, EncodingMemo, Event, Links, LoopServices, Pending, PipelineTypes, Push,
        SharedMessage,
    },
    error::drop_guarded,
    log_throttle::{REPLACED, log_throttled},
    pipeline::handler::{Context, Handler, run_as, run_as_any},
    sync::TypeName,
};
use bytes::Bytes;
use log::Level;
use std::any::{Any, TypeId};

/// All links of a pipeline and its handler.
pub(in crate::pipeline) struct Assembled<P, H> {
    pub(in crate::pipeline) links: P,
    pub(in crate::pipeline) handler: H,
}

impl<H: Handler, P: Push<H::Write>> Assembled<P, H> {
    #[inline]
    fn split<'a>(
        &'a mut self,
        state: &'a mut ChannelState,
        services: &'a mut LoopServices,
    ) -> (&'a mut H, Context<'a, H>) {
        (&mut self.handler, Context::new(&mut self.links, state, services))
    }
}

impl<H: Handler, P: Pull<Item = H::Read>> Assembled<P, H> {
    /// Makes the driver deliver messages that stages have queued outside of `read`.
    #[inline]
    fn announce_more(&self, state: &mut ChannelState) {
        if self.links.has_more() {
            state.status.set(Pending::UNDECODED);
        }
    }
}

impl<H: Handler, P: Pull<Item = H::Read> + Push<H::Write>> Links for Assembled<P, H> {
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

    fn event(&mut self, state: &mut ChannelState, services: &mut LoopServices, event: Event) -> Result {
        // The handler's `active` is called also if a stage fails.
        let stages = match event {
            Event::StageTimer => {
                let told = self.links.tell_stages(state, &services.random, StageEvent::Timer);
                self.announce_more(state);
                return told;
            }
            Event::Active => {
                let told = self.links.tell_stages(state, &services.random, StageEvent::Active);
                self.announce_more(state);
                told
            }
            _ => Ok(()),
        };
        let (handler, mut ctx) = self.split(state, services);
        match event {
            Event::Active => stages.and(handler.active(&mut ctx)),
            Event::ReadComplete => handler.read_complete(&mut ctx),
            Event::InputShutdown => handler.read_closed(&mut ctx),
            Event::Writability(writable) => handler.writability_changed(&mut ctx, writable),
            Event::Idle(event) => handler.idle(&mut ctx, event),
            Event::Shutdown => handler.shutdown(&mut ctx),
            Event::Error(error) => handler.error(&mut ctx, error),
            Event::Inactive => handler.inactive(&mut ctx),
            Event::StageTimer => Ok(()),
        }
    }

    fn write(&mut self, state: &mut ChannelState, message: Box<dyn Any + Send>) -> Result {
        match message.downcast::<H::Write>() {
            Ok(message) => self.links.push(state, *message),
            // The handle belongs to an earlier pipeline.
            Err(message) => {
                drop_guarded(message);
                Err(Error::Replaced)
            }
        }
    }

    fn write_shared(
        &mut self,
        state: &mut ChannelState,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
    ) -> Result {
        let key = self.links.encoding_key();
        write_shared::<H::Write, P>(&mut self.links, state, key, message, memo)
    }

    fn run(&mut self, state: &mut ChannelState, services: &mut LoopServices, task: Box<dyn Any>) -> Result {
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
