//! The pipeline of a channel whose filters are not established yet.
//!
//! Invariant: nothing of the program is called through it.

use super::{decode_pass::DecodePass, establish::Establish};
use crate::{
    channel::{
        PipelineTypes,
        core::{ChannelState, ErasedPipeline, services::LoopServices},
        event::Event,
        shared_message::{EncodingMemo, SharedMessage},
    },
    error::{Error, Result, drop_guarded},
};
use bytes::Bytes;
use std::{
    any::{Any, TypeId},
    ops::ControlFlow,
};

/// Refuses messages and ignores events.
pub(in crate::channel) struct Placeholder {
    /// Continues the start of the channel. `None` once it was notified.
    establish: Option<Box<dyn Establish>>,
}

impl Placeholder {
    pub(in crate::channel) fn new(establish: Box<dyn Establish>) -> Self {
        Placeholder { establish: Some(establish) }
    }
}

impl ErasedPipeline for Placeholder {
    fn read(
        &mut self,
        _: &mut ChannelState,
        _: &mut LoopServices,
        _: &mut Bytes,
        _: &mut DecodePass,
    ) -> Result {
        Ok(())
    }

    fn has_more(&self) -> bool {
        false
    }

    fn has_unfinished_output(&self) -> bool {
        false
    }

    fn write(&mut self, _: &mut ChannelState, _: &mut LoopServices, message: Box<dyn Any + Send>) -> Result {
        drop_guarded(message);
        Err(Error::PipelineReplaced)
    }

    fn write_latest(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        _: u64,
        message: Box<dyn Any + Send>,
    ) -> Result {
        self.write(state, services, message)
    }

    fn write_shared(
        &mut self,
        _: &mut ChannelState,
        _: &mut LoopServices,
        _: &dyn SharedMessage,
        _: &mut EncodingMemo,
    ) -> Result {
        Err(Error::PipelineReplaced)
    }

    fn event(&mut self, _: &mut ChannelState, _: &mut LoopServices, _: Event) -> Result {
        Ok(())
    }

    fn run(&mut self, _: &mut ChannelState, _: &mut LoopServices, task: Box<dyn Any>) -> Result {
        drop_guarded(task);
        Ok(())
    }

    fn run_periodic(
        &mut self,
        _: &mut ChannelState,
        _: &mut LoopServices,
        _: &mut dyn Any,
    ) -> Result<ControlFlow<()>> {
        Ok(ControlFlow::Break(()))
    }

    fn forget_encoded(&mut self) {}

    fn handler_type(&self) -> crate::sync::TypeName {
        || "handshake"
    }

    fn types(&self) -> PipelineTypes {
        let none = TypeId::of::<Placeholder>();
        PipelineTypes { message: none, handler: none, size_hint: |_| None }
    }

    fn establish(&mut self) -> Option<&mut dyn Establish> {
        self.establish.as_deref_mut().map(|establish| establish as &mut dyn Establish)
    }

    fn take_establish(&mut self) -> Option<Box<dyn Establish>> {
        self.establish.take()
    }
}
