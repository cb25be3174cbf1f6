//! How a typed pipeline nests.
//!
//! Inward the driver *pulls* one message through the nested links, which let go of everything before the handler
//! is called; so `ctx.write` may *push* through the very same links. Between two messages the driver looks again
//! whether to go on. One virtual call enters per event ([`Links`]), one leaves per write ([`Push`] behind a
//! [`Scope`]); everything between is monomorphised.
//!
//! The links are `pub` because they are parts of the type of every [`Pipeline`](super::Pipeline) in the making,
//! but this module is private: nobody outside can name or implement them.

use super::{
    Codec, Context, Handler, Stage,
    context::HandlerTask,
    remote::RemoteTask,
    shared::{EncodingMemo, SharedMessage, combine, write_shared},
    stage::StageContext,
};
use crate::{
    Error, Result,
    buffer::Mark,
    channel::{ChannelState, Flags, IdleEvent, LoopServices, PipelineTypes, Scope, ScopeTask},
    error::drop_guarded,
    sync::TypeName,
};
use bytes::Bytes;
use std::any::{Any, TypeId};

/// Inward: the next message, if the bytes at hand make one.
pub trait Pull: 'static {
    /// The message.
    type Item: 'static;

    /// Takes one message; `last` when no more bytes will come.
    fn pull(&mut self, state: &mut ChannelState, input: &mut Bytes, last: bool)
    -> Result<Option<Self::Item>>;

    /// Tells the stages of something, in the order in which messages come in: all of them, also if one fails. The first
    /// error is returned.
    fn tell_stages(&mut self, state: &mut ChannelState, event: StageEvent) -> Result;

    /// What stands for the settings that the encoding depends on; none if it depends on the channel.
    fn shared_encoding(&self) -> Option<u64>;
}

/// What stages are told beside messages.
#[derive(Debug, Clone, Copy)]
pub enum StageEvent {
    /// The channel is connected.
    Active,
    /// A time has come for which one of them asked.
    Timer,
}

/// Outward: one message towards the socket.
pub trait Push<M> {
    /// Encodes it into the channel's outbound buffer.
    fn push(&mut self, state: &mut ChannelState, message: M) -> Result;
}

/// The codec as the first link.
pub struct CodecLink<C>(pub(super) C);

impl<C: Codec> Pull for CodecLink<C> {
    type Item = C::In;

    #[inline(always)]
    fn pull(&mut self, _: &mut ChannelState, input: &mut Bytes, last: bool) -> Result<Option<C::In>> {
        let before = input.len();
        let message = if last { self.0.decode_last(input)? } else { self.0.decode(input)? };
        if message.is_some() && input.len() == before && !last {
            return Err(Error::other("the codec made a message of no bytes, and would do so for ever"));
        }
        Ok(message)
    }

    fn tell_stages(&mut self, _: &mut ChannelState, _: StageEvent) -> Result {
        Ok(())
    }

    #[inline]
    fn shared_encoding(&self) -> Option<u64> {
        self.0.shared_encoding()
    }
}

impl<C: Codec> Push<C::Out> for CodecLink<C> {
    #[inline]
    fn push(&mut self, state: &mut ChannelState, message: C::Out) -> Result {
        // Each result is looked at where it comes from: to carry one along is to copy all that an error could hold.
        let output = state.outbound_for_write()?;
        let mark = output.mark();
        if let Err(error) = self.0.encode(message, output) {
            return refuse(state, mark, error);
        }
        let len = output.len();
        if !state.has_outbound_room(len) {
            return refuse(state, mark, state.outbound_is_full());
        }
        Ok(())
    }
}

/// A stage behind the links before it.
pub struct StageLink<P, S> {
    pub(super) before: P,
    pub(super) stage: S,
}

impl<S: Stage, P: Pull<Item = S::In> + Push<S::WriteOut>> Pull for StageLink<P, S> {
    type Item = S::Out;

    #[inline]
    fn pull(&mut self, state: &mut ChannelState, input: &mut Bytes, last: bool) -> Result<Option<S::Out>> {
        while let Some(message) = self.before.pull(state, input, last)? {
            let mut ctx = StageContext { before: &mut self.before, state };
            if let Some(out) = self.stage.read(&mut ctx, message)? {
                return Ok(Some(out));
            }
            if !state.may_deliver() {
                break;
            }
        }
        Ok(None)
    }

    fn tell_stages(&mut self, state: &mut ChannelState, event: StageEvent) -> Result {
        let before = self.before.tell_stages(state, event);
        let mut ctx = StageContext { before: &mut self.before, state };
        let this = match event {
            StageEvent::Active => self.stage.active(&mut ctx),
            StageEvent::Timer => self.stage.timer(&mut ctx),
        };
        before.and(this)
    }

    #[inline]
    fn shared_encoding(&self) -> Option<u64> {
        Some(combine(self.before.shared_encoding()?, self.stage.shared_encoding()?))
    }
}

impl<S: Stage, P: Push<S::WriteOut>> Push<S::WriteIn> for StageLink<P, S> {
    #[inline]
    fn push(&mut self, state: &mut ChannelState, message: S::WriteIn) -> Result {
        // Of a message that the stage makes several of, all are written or none.
        let mark = state.outbound_for_write()?.mark();
        match self.stage.write(&mut StageContext { before: &mut self.before, state }, message) {
            Ok(()) => Ok(()),
            Err(error) => refuse(state, mark, error),
        }
    }
}

/// Takes back what was encoded of a message that fails.
#[cold]
fn refuse(state: &mut ChannelState, mark: Mark, error: Error) -> Result {
    state.rollback_outbound(mark);
    Err(error)
}

/// An event for the handler that carries no bytes.
pub(crate) enum Event {
    Active,
    ReadComplete,
    InputShutdown,
    Writability(bool),
    Idle(IdleEvent),
    Shutdown,
    Error(Error),
    Inactive,
    /// Not for the handler: the time has come for which a stage asked.
    StageTimer,
}

/// What comes behind the bytes at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batch {
    /// Maybe more, at once.
    Part,
    /// Nothing for now.
    Complete,
    /// Nothing any more: the peer has ended its stream.
    Last,
}

/// The channel boundary: the only trait object that an event passes through.
pub(crate) trait Links {
    /// Decodes `input` and hands each message to the handler, as long as the channel may deliver. Behind the last message of
    /// a batch that is complete it tells the handler so, if nothing is to be done before that; then it is `told`.
    fn read(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        batch: Batch,
        told: &mut bool,
    ) -> Result;

    fn event(&mut self, state: &mut ChannelState, services: &mut LoopServices, event: Event) -> Result;

    /// Writes a message that was boxed by a `Channel` handle; `Error::Replaced` if it is not of this pipeline's type.
    fn write(&mut self, state: &mut ChannelState, message: Box<dyn Any + Send>) -> Result;

    /// Writes a message that many channels get, encoded by these links or by others that do it alike.
    fn write_shared(
        &mut self,
        state: &mut ChannelState,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
    ) -> Result;

    /// Runs a task that came due, or that a `Channel` handle brought; drops it if it is not of this pipeline's types.
    fn run(&mut self, state: &mut ChannelState, services: &mut LoopServices, task: Box<dyn Any>) -> Result;

    /// The handler's type, for reports.
    fn handler_type(&self) -> TypeName;

    /// What handles to this pipeline are typed by.
    fn types(&self) -> PipelineTypes;
}

/// All links of a pipeline and its handler.
pub(super) struct Assembled<P, H> {
    pub(super) links: P,
    pub(super) handler: H,
}

impl<H: Handler, P: Push<H::Out>> Assembled<P, H> {
    #[inline]
    fn split<'a>(
        &'a mut self,
        state: &'a mut ChannelState,
        services: &'a mut LoopServices,
    ) -> (&'a mut H, Context<'a, H>) {
        let scope = Scope { links: &mut self.links, state, services };
        (&mut self.handler, Context::new(scope))
    }
}

impl<H: Handler, P: Pull<Item = H::In> + Push<H::Out>> Links for Assembled<P, H> {
    fn read(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        batch: Batch,
        told: &mut bool,
    ) -> Result {
        let last = batch == Batch::Last;
        while state.may_deliver() {
            let Some(message) = self.links.pull(state, input, last)? else { break };
            state.note_message();
            services.tally.messages_read += 1;
            state.counts.messages_read += 1;
            let (handler, mut ctx) = self.split(state, services);
            handler.read(&mut ctx, message)?;
            if !input.is_empty() && services.io_is_over() {
                state.set(Flags::UNDECODED);
            }
        }
        if batch == Batch::Complete && input.is_empty() && state.may_complete() {
            *told = true;
            let (handler, mut ctx) = self.split(state, services);
            handler.read_complete(&mut ctx)?;
        }
        Ok(())
    }

    fn event(&mut self, state: &mut ChannelState, services: &mut LoopServices, event: Event) -> Result {
        // The handler is told that it is connected whatever becomes of a stage.
        let stages = match event {
            Event::StageTimer => return self.links.tell_stages(state, StageEvent::Timer),
            Event::Active => self.links.tell_stages(state, StageEvent::Active),
            _ => Ok(()),
        };
        let (handler, mut ctx) = self.split(state, services);
        match event {
            Event::Active => stages.and(handler.active(&mut ctx)),
            Event::ReadComplete => handler.read_complete(&mut ctx),
            Event::InputShutdown => handler.input_shutdown(&mut ctx),
            Event::Writability(writable) => handler.writability_changed(&mut ctx, writable),
            Event::Idle(event) => handler.idle(&mut ctx, event),
            Event::Shutdown => handler.shutdown(&mut ctx),
            Event::Error(error) => handler.error(&mut ctx, error),
            Event::Inactive => handler.inactive(&mut ctx),
            Event::StageTimer => Ok(()),
        }
    }

    fn write(&mut self, state: &mut ChannelState, message: Box<dyn Any + Send>) -> Result {
        match message.downcast::<H::Out>() {
            Ok(message) => self.links.push(state, *message),
            // The handle is of the pipeline before this one.
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
        let key = self.links.shared_encoding();
        write_shared::<H::Out, P>(&mut self.links, state, key, message, memo)
    }

    fn run(&mut self, state: &mut ChannelState, services: &mut LoopServices, task: Box<dyn Any>) -> Result {
        let (handler, mut ctx) = self.split(state, services);
        let task = match task.downcast::<HandlerTask<H>>() {
            Ok(task) => return task.run(handler, &mut ctx),
            Err(task) => task,
        };
        let task = match task.downcast::<RemoteTask<H>>() {
            Ok(task) => return task.run(handler, &mut ctx),
            Err(task) => task,
        };
        match task.downcast::<ScopeTask<H::Out>>() {
            Ok(task) => task.run(&mut ctx),
            // Whoever sent it raced with the replacement of the pipeline; it is nobody's error.
            Err(task) => {
                log::debug!("channel {}: dropped a task for a pipeline that was replaced", ctx.id());
                drop_guarded(task);
                Ok(())
            }
        }
    }

    #[inline]
    fn handler_type(&self) -> TypeName {
        std::any::type_name::<H>
    }

    fn types(&self) -> PipelineTypes {
        PipelineTypes { message: TypeId::of::<H::Out>(), handler: TypeId::of::<H>() }
    }
}
