//! The interface between a channel and the links of its pipeline.
//!
//! One virtual call enters a pipeline for each event ([`ErasedPipeline`]), and one leaves the
//! handler for each write ([`Push`]). The pipeline layer implements both; the channel layer does
//! not know how.

#[cfg(feature = "simulation")]
mod checked;
mod decode_pass;
mod pipeline;
mod placeholder;
mod shared_message;

#[cfg(feature = "simulation")]
pub(in crate::channel) use checked::checked;
pub(crate) use decode_pass::{Batch, DecodePass, MAX_EXTRA_MESSAGES};
pub use pipeline::{AnyPipeline, IntoPipeline, Pipeline};
pub(in crate::channel) use placeholder::Placeholder;
pub(in crate::channel) use shared_message::{Encoder, again};
pub(crate) use shared_message::{EncodingMemo, SharedMessage};

use super::{
    event::Event,
    handle::{PipelineTypes, SizeHint},
    services::LoopServices,
    state::ChannelState,
};
use crate::{Result, sync::TypeName};
use bytes::Bytes;
use std::{any::Any, ops::ControlFlow};

/// The outbound side of the links, for a writer that knows only the message type.
pub(crate) trait Push<M> {
    /// Encodes a message into the channel's outbound buffer.
    fn push(&mut self, state: &mut ChannelState, services: &mut LoopServices, message: M) -> Result;

    /// Returns the function that estimates the encoded size of a message.
    fn size_hint(&self) -> SizeHint;
}

/// A whole pipeline with all types erased: the only trait object that an event passes through.
pub(crate) trait ErasedPipeline {
    /// Decodes `input` and hands each message to the handler, while the channel may deliver. After
    /// the last message of a complete batch, calls `read_complete` unless other work comes first,
    /// and sets `told` in the pass.
    fn read(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result;

    /// Returns whether the codec or a stage has queued messages.
    fn has_more(&self) -> bool;

    /// Returns whether a stage has begun a message to the peer whose rest is not written yet.
    fn has_unfinished_output(&self) -> bool;

    /// Writes a message from a `Channel` handle. Fails with `Error::PipelineReplaced` if this
    /// pipeline writes another type.
    fn write(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: Box<dyn Any + Send>,
    ) -> Result;

    /// Writes a message for many channels, encoded by these links or by equivalent ones.
    fn write_shared(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
    ) -> Result;

    /// Passes an event to the stages, in the order from the socket, and then to the handler. The
    /// handler is called also if a stage fails. Returns the first error.
    fn event(&mut self, state: &mut ChannelState, services: &mut LoopServices, event: Event) -> Result;

    /// Runs a task of the handler or of a stage, or one from a handle. Drops a task for another
    /// pipeline.
    fn run(&mut self, state: &mut ChannelState, services: &mut LoopServices, task: Box<dyn Any>) -> Result;

    /// Runs a periodic task of the handler or of a stage, or one from a handle. Returns whether it
    /// goes on. A task for another pipeline does not.
    fn run_periodic(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        task: &mut dyn Any,
    ) -> Result<ControlFlow<()>>;

    /// Returns the name of the handler's type, for reports.
    fn handler_type(&self) -> TypeName;

    /// Returns the types that handles to this pipeline must match.
    fn types(&self) -> PipelineTypes;

    /// Notes that another pipeline takes over, so that `inactive` is not called.
    #[cfg(feature = "simulation")]
    fn note_replaced(&mut self) {}
}
