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
    buffer::OutboundMark,
    channel::{ChannelState, Flags, IdleEvent, LoopServices, PipelineTypes, Scope, ScopeTask, SizeHint},
    error::drop_guarded,
    log_throttle::{REPLACED, log_throttled},
    sync::{Random, TypeName},
};
use bytes::Bytes;
use log::Level;
use std::any::{Any, TypeId};

/// Inward: the next message, if the bytes at hand make one.
pub trait Pull: 'static {
    /// The message.
    type Item: 'static;

    /// Takes one message: a queued message of a link, or the next message in `input`. There is one or the other, unless it
    /// is the `LAST` pass: the peer has ended its stream.
    fn pull<const LAST: bool>(
        &mut self,
        state: &mut ChannelState,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result<Option<Self::Item>>;

    /// Returns whether a link has queued messages.
    fn has_more(&self) -> bool;

    /// Tells the stages of something, in the order in which messages come in: all of them, also if one fails. The first
    /// error is returned.
    fn tell_stages(&mut self, state: &mut ChannelState, random: &Random, event: StageEvent) -> Result;

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

    /// Estimates the encoded size of a message.
    fn encoded_len_hint(message: &M) -> Option<usize>
    where
        Self: Sized;

    /// The same estimate for a message whose type is erased.
    fn size_hint(&self) -> SizeHint;
}

/// The codec as the first link.
pub struct CodecLink<C>(pub(super) C);

impl<C: Codec> Pull for CodecLink<C> {
    type Item = C::In;

    #[inline(always)]
    fn pull<const LAST: bool>(
        &mut self,
        _: &mut ChannelState,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result<Option<C::In>> {
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
    fn shared_encoding(&self) -> Option<u64> {
        self.0.shared_encoding()
    }
}

impl<C: Codec> CodecLink<C> {
    /// Decodes the remaining bytes at the end of the stream, and bounds the messages of no bytes.
    #[inline(never)]
    fn pull_last(&mut self, input: &mut Bytes, pass: &mut DecodePass) -> Result<Option<C::In>> {
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

impl<C: Codec> Push<C::Out> for CodecLink<C> {
    #[inline]
    fn push(&mut self, state: &mut ChannelState, message: C::Out) -> Result {
        // Each result is looked at where it comes from: to carry one along is to copy all that an error could hold.
        let output = state.outbound_for_write()?;
        let mark = output.mark();
        if let Err(error) = self.0.encode(message, output) {
            return refuse(state, mark, error);
        }
        if !state.has_outbound_room(mark) {
            return refuse(state, mark, state.outbound_is_full());
        }
        Ok(())
    }

    fn encoded_len_hint(message: &C::Out) -> Option<usize> {
        C::encoded_len_hint(message)
    }

    fn size_hint(&self) -> SizeHint {
        |message| message.downcast_ref().and_then(C::encoded_len_hint)
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
    fn pull<const LAST: bool>(
        &mut self,
        state: &mut ChannelState,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result<Option<S::Out>> {
        loop {
            if self.stage.has_more() {
                if !pass.spend() {
                    break;
                }
                let mut ctx = StageContext { before: &mut self.before, state, random: None };
                if let Some(out) = self.stage.read_more(&mut ctx)? {
                    return Ok(Some(out));
                }
                if !state.may_deliver() {
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
            if !state.may_deliver() {
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
    fn shared_encoding(&self) -> Option<u64> {
        Some(combine(self.before.shared_encoding()?, self.stage.shared_encoding()?))
    }
}

impl<S: Stage, P: Push<S::WriteOut>> Push<S::WriteIn> for StageLink<P, S> {
    #[inline]
    fn push(&mut self, state: &mut ChannelState, message: S::WriteIn) -> Result {
        // Of a message that the stage makes several of, all are written or none.
        let mark = state.outbound_for_write()?.mark();
        let limit = state.limit_for_message();
        match self.stage.write(&mut StageContext { before: &mut self.before, state, random: None }, message) {
            Ok(()) => {
                state.restore_limit(limit);
                Ok(())
            }
            Err(error) => {
                state.restore_limit(limit);
                refuse(state, mark, error)
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

/// Takes back what was encoded of a message that fails.
#[cold]
fn refuse(state: &mut ChannelState, mark: OutboundMark, error: Error) -> Result {
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

/// The limit per pass for messages that take no input: queued messages of the links, and last
/// messages of the codec. Further queued messages are delivered in the next turn.
const MAX_EXTRA_MESSAGES: u32 = 1024;

/// One pass over the bytes at hand. A flush interrupts a pass; the same pass continues afterwards.
#[derive(Debug)]
pub struct DecodePass {
    batch: Batch,
    /// Whether `read_complete` has been called.
    told: bool,
    /// The remaining number of messages that may take no input.
    extra: u32,
    /// Whether the time for I/O in this turn was up.
    timed_out: bool,
}

impl DecodePass {
    #[inline]
    pub(crate) fn new(batch: Batch) -> Self {
        DecodePass { batch, told: false, extra: MAX_EXTRA_MESSAGES, timed_out: false }
    }

    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        self.batch == Batch::Last
    }

    #[inline]
    pub(crate) fn told(&self) -> bool {
        self.told
    }

    /// Returns whether the limit for messages that take no input is reached.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.extra == 0
    }

    /// Whether the pass ended because the time for I/O in this turn was up.
    #[inline]
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// Counts a message without input of its own. Returns `false` beyond the limit.
    fn spend(&mut self) -> bool {
        let left = self.extra.checked_sub(1);
        self.extra = left.unwrap_or(0);
        left.is_some()
    }
}

/// The channel boundary: the only trait object that an event passes through.
pub(crate) trait Links {
    /// Decodes `input` and hands each message to the handler, while the channel may deliver. After the
    /// last message of a complete batch, calls `read_complete` unless other work comes first, and
    /// sets `told` in the pass.
    fn read(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result;

    /// Returns whether the codec or a stage has queued messages.
    fn has_more(&self) -> bool;

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

impl<H: Handler, P: Pull<Item = H::In>> Assembled<P, H> {
    /// Makes the driver deliver messages that stages have queued outside of `read`.
    #[inline]
    fn announce_more(&self, state: &mut ChannelState) {
        if self.links.has_more() {
            state.set(Flags::UNDECODED);
        }
    }
}

impl<H: Handler, P: Pull<Item = H::In> + Push<H::Out>> Assembled<P, H> {
    /// Delivers the messages of a pass, while there is input or a queued message. The caller has looked that there is either.
    /// Before message number `look_at` of the channel nobody looks at the clock.
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
        while state.may_deliver() {
            let Some(message) = self.links.pull::<false>(state, input, pass)? else { break };
            if let Err(error) = self.hand_over(state, services, message) {
                return Err(error);
            }
            if input.is_empty() && !self.links.has_more() {
                break;
            }
            if state.counts.messages_read >= *look_at {
                *look_at = look_at_time(state, services, pass);
            }
        }
        Ok(())
    }

    /// Delivers what is left at the end of the stream. No later turn can, so the time does not matter.
    #[cold]
    fn deliver_last(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result {
        while state.may_deliver() {
            let Some(message) = self.links.pull::<true>(state, input, pass)? else { break };
            services.tally.messages_read += 1;
            self.hand_over(state, services, message)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn hand_over(&mut self, state: &mut ChannelState, services: &mut LoopServices, message: H::In) -> Result {
        state.note_message();
        state.counts.messages_read += 1;
        let (handler, mut ctx) = self.split(state, services);
        handler.read(&mut ctx, message)
    }
}

/// Looks at the clock: whether the time for I/O is up. Returns the number of the message behind which to look again.
#[cold]
fn look_at_time(state: &mut ChannelState, services: &mut LoopServices, pass: &mut DecodePass) -> u64 {
    services.io_time.set_left(0);
    if services.io_is_over() {
        pass.timed_out = true;
        state.set(Flags::UNDECODED);
    }
    state.counts.messages_read + 1 + u64::from(services.io_time.left())
}

impl<H: Handler, P: Pull<Item = H::In> + Push<H::Out>> Links for Assembled<P, H> {
    fn read(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result {
        if pass.is_last() {
            self.deliver_last(state, services, input, pass)?;
        } else if !input.is_empty() || self.links.has_more() {
            let before = state.counts.messages_read;
            let mut look_at = before + 1 + u64::from(services.io_time.left());
            let delivered = self.deliver(state, services, input, pass, &mut look_at);
            let read = state.counts.messages_read;
            services.tally.messages_read += read - before;
            // The last message of a read is not a unit of its own. When the time is up nothing is left.
            let left = if pass.timed_out { 0 } else { look_at.saturating_sub(read.max(before + 1)) };
            services.io_time.set_left(u32::try_from(left).unwrap_or(u32::MAX));
            delivered?;
        }
        // A spent pass leaves messages in the links.
        if pass.batch == Batch::Complete && input.is_empty() && state.may_complete() && !pass.is_spent() {
            pass.told = true;
            let (handler, mut ctx) = self.split(state, services);
            handler.read_complete(&mut ctx)?;
        }
        Ok(())
    }

    fn has_more(&self) -> bool {
        self.links.has_more()
    }

    fn event(&mut self, state: &mut ChannelState, services: &mut LoopServices, event: Event) -> Result {
        // The handler is told that it is connected whatever becomes of a stage.
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
                let id = ctx.id();
                log_throttled!(
                    ctx.services,
                    REPLACED,
                    Level::Debug,
                    "channel {id}: dropped a task for a pipeline that was replaced"
                );
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
        PipelineTypes {
            message: TypeId::of::<H::Out>(),
            handler: TypeId::of::<H>(),
            size_hint: self.links.size_hint(),
        }
    }
}
