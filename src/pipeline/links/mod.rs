//! The nesting of a typed pipeline.
//!
//! Inward, the driver *pulls* one message through the nested links. They return before the handler
//! is called, so `ctx.write` may *push* through the same links. Between two messages the driver
//! looks at the channel: a close, auto-read off, a flush or another pipeline takes effect there.
//! One virtual call enters per event ([`ErasedPipeline`](crate::channel::ErasedPipeline)), and one
//! leaves per write ([`Push`] behind a [`Context`](crate::Context)). Everything in between is
//! monomorphised.
//!
//! A codec or stage that makes several messages of one input queues all but the first. The links
//! deliver queued messages before they decode more input; `DecodePass` has the limits.
//!
//! A stage is identified by its position, which is a constant of its type. Tasks of stages carry
//! the position, which distinguishes two stages of the same type.

mod assembled;
mod framed;
mod latest;
mod shared;
mod staged;

pub(super) use assembled::Assembled;
pub use framed::Framed;
pub(crate) use shared::combine;
pub use staged::Staged;

use crate::{
    channel::{ChannelState, DecodePass, LoopServices, Push, SizeHint},
    error::{Error, Result},
};
use bytes::Bytes;
use latest::push_latest;
use std::{any::Any, ops::ControlFlow};

/// The codec and stages of an unfinished pipeline.
///
/// Use this trait to return a [`PipelineBuilder`](super::PipelineBuilder) from a function
/// without naming the types of its links. `Read` and `Write` are the messages that the next stage
/// or the handler reads and writes:
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{
///     codec::LengthField,
///     pipeline::{Links, PipelineBuilder},
///     prelude::*,
/// };
/// use std::time::Duration;
///
/// /// The part that all pipelines of this program share.
/// fn wire(max_len: usize) -> PipelineBuilder<impl Links<Read = Bytes, Write = Bytes>> {
///     Pipeline::codec(LengthField::u32().max_len(max_len))
///         .idle(IdleTimeouts::new().reader(Duration::from_secs(90)))
/// }
///
/// # struct Session;
/// # impl Handler for Session {
/// #     type Read = Bytes;
/// #     type Write = Bytes;
/// #     fn read(&mut self, ctx: &mut Context<'_, Self>, m: Bytes) -> Result { ctx.write(m) }
/// # }
/// let pipeline = wire(65_536).handler(Session);
/// # let _ = pipeline;
/// ```
///
/// Implemented by [`Framed`], a codec, and [`Staged`], a stage behind
/// other links. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a part of a pipeline",
    label = "not the links of a pipeline",
    note = "links begin with `Pipeline::codec(..)`, followed by any number of `.stage(..)`"
)]
pub trait Links: sealed::Sealed + 'static {
    /// The messages that the next stage or the handler reads.
    type Read: 'static;
    /// The messages that the next stage or the handler writes.
    type Write: 'static;

    /// The number of stages. The last stage is at this position, counted from 1.
    #[doc(hidden)]
    const STAGES: u32;

    /// Takes one message: a queued message of a link, or the next message in `input`. There is one
    /// or the other, unless it is the `LAST` pass: the peer has ended its stream.
    #[doc(hidden)]
    fn pull<const LAST: bool>(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result<Option<Self::Read>>;

    /// Encodes a message into the channel's outbound buffer.
    #[doc(hidden)]
    fn push_message(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: Self::Write,
    ) -> Result;

    /// Estimates the encoded size of a message.
    #[doc(hidden)]
    fn encoded_len_hint(message: &Self::Write) -> Option<usize>;

    /// Returns whether a link has queued messages.
    #[doc(hidden)]
    fn has_more(&self) -> bool;

    /// Returns whether a stage has begun a message to the peer whose rest is not written yet.
    #[doc(hidden)]
    fn has_unfinished_output(&self) -> bool;

    /// Passes an event to all stages in the order from the socket, also if one fails. Returns the
    /// first error.
    #[doc(hidden)]
    fn stage_event(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        event: StageEvent,
    ) -> Result;

    /// Passes an error to the stages in the order from the socket. Each stage may handle it.
    /// Returns the error for the handler, if any.
    #[doc(hidden)]
    fn stage_error(&mut self, state: &mut ChannelState, services: &mut LoopServices, error: Error) -> Result;

    /// Runs a task of one of the stages. Returns the task if it belongs to none of them.
    #[doc(hidden)]
    fn run_stage_task(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        task: Box<dyn Any>,
    ) -> Result<Result, Box<dyn Any>>;

    /// Runs a periodic task of one of the stages. Returns `None` if it belongs to none of them.
    #[doc(hidden)]
    fn run_periodic_stage_task(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        task: &mut dyn Any,
    ) -> Option<Result<ControlFlow<()>>>;

    /// Returns a key for the settings that the encoding depends on, or `None` if it depends on the
    /// channel.
    #[doc(hidden)]
    fn encoding_key(&self) -> Option<u64>;

    /// Makes later messages independent of those encoded before.
    #[doc(hidden)]
    fn forget_encoded(&mut self);
}

mod sealed {
    pub trait Sealed {}
}

/// The events of stages.
#[derive(Debug, Clone, Copy)]
pub enum StageEvent {
    /// The channel is connected.
    Active,
    /// The available input has been decoded.
    ReadComplete,
    /// The channel's writability has changed to this.
    Writability(bool),
    /// The peer has ended its stream.
    ReadClosed,
    /// A timer of a stage has expired.
    Timer,
    /// The event loop is shutting down.
    Shutdown,
    /// An error closes the channel, and the handler's `error` was called.
    Failed,
    /// The channel is closed.
    Inactive,
}

impl<L: Links> Push<L::Write> for L {
    /// The one copy of the encoding path: every other caller calls it, so that it need not be a
    /// call of `push_message`.
    #[inline]
    fn push(&mut self, state: &mut ChannelState, services: &mut LoopServices, message: L::Write) -> Result {
        self.push_message(state, services, message)
    }

    fn push_latest(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        key: u64,
        message: L::Write,
    ) -> Result {
        push_latest(self, state, services, key, message)
    }

    fn size_hint(&self) -> SizeHint {
        |message| message.downcast_ref().and_then(L::encoded_len_hint)
    }
}
