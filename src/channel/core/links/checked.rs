//! A pipeline in a simulation, which checks the order of its calls.
//!
//! Invariants that it checks: `active` is the first call, `inactive` is called exactly once after
//! it and is the last call, and no call is made from within another one. A pipeline that was called
//! `active` is dropped after its `inactive`, unless another pipeline has replaced it.

use super::{decode_pass::DecodePass, establish::Establish};
use crate::{
    channel::{
        PipelineTypes,
        core::{ChannelState, ErasedPipeline, services::LoopServices},
        event::Event,
        shared_message::{EncodingMemo, SharedMessage},
    },
    error::Result,
    machine::simulated,
    sync::TypeName,
};
use bytes::Bytes;
use std::{any::Any, ops::ControlFlow};

/// Returns a pipeline that checks its calls if the calling thread belongs to a simulation.
pub(in crate::channel) fn checked(pipeline: Box<dyn ErasedPipeline>) -> Box<dyn ErasedPipeline> {
    if simulated::current().is_none() {
        return pipeline;
    }
    Box::new(Checked { pipeline, life: Life::New, is_called: false, is_replaced: false })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    New,
    Active,
    Ended,
}

struct Checked {
    pipeline: Box<dyn ErasedPipeline>,
    life: Life,
    is_called: bool,
    is_replaced: bool,
}

impl Checked {
    /// Reports a call that must not happen.
    #[inline]
    fn must(&self, holds: bool, call: &str, why_not: &str) {
        if !holds {
            let name = (self.pipeline.handler_type())();
            simulated::violate(|| format!("{name}: {call} {why_not}"));
        }
    }

    /// Makes a call between `active` and `inactive`.
    fn within<R>(&mut self, what: &str, call: impl FnOnce(&mut dyn ErasedPipeline) -> R) -> R {
        self.must(self.life != Life::New, what, "is called before `active`");
        self.must(self.life != Life::Ended, what, "is called after `inactive`");
        self.call(what, call)
    }

    fn call<R>(&mut self, what: &str, call: impl FnOnce(&mut dyn ErasedPipeline) -> R) -> R {
        self.must(!self.is_called, what, "is called from within another call");
        self.is_called = true;
        let guard = Returning(self);
        call(&mut *guard.0.pipeline)
    }
}

/// Notes the end of a call, also by a panic.
struct Returning<'a>(&'a mut Checked);

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.0.is_called = false;
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        // Handlers are not called on a node that was killed.
        let is_killed = simulated::current().is_none_or(|machine| !machine.is_alive());
        let has_ended = self.life != Life::Active || self.is_replaced || is_killed;
        self.must(has_ended, "the handler", "is dropped without a call of `inactive`");
    }
}

impl ErasedPipeline for Checked {
    fn read(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result {
        self.within("`read`", |pipeline| pipeline.read(state, services, input, pass))
    }

    fn has_more(&self) -> bool {
        self.pipeline.has_more()
    }

    fn has_unfinished_output(&self) -> bool {
        self.pipeline.has_unfinished_output()
    }

    fn write(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: Box<dyn Any + Send>,
    ) -> Result {
        self.within("a write", |pipeline| pipeline.write(state, services, message))
    }

    fn write_latest(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        key: u64,
        message: Box<dyn Any + Send>,
    ) -> Result {
        self.within("a write", |pipeline| pipeline.write_latest(state, services, key, message))
    }

    fn write_shared(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
    ) -> Result {
        self.within("a broadcast", |pipeline| pipeline.write_shared(state, services, message, memo))
    }

    fn event(&mut self, state: &mut ChannelState, services: &mut LoopServices, event: Event) -> Result {
        match event {
            Event::Active => {
                self.must(self.life == Life::New, "`active`", "is not the first call");
                self.life = Life::Active;
                self.call("`active`", |pipeline| pipeline.event(state, services, event))
            }
            Event::Inactive => {
                let is_active = self.life == Life::Active;
                self.must(is_active, "`inactive`", "is called twice, or without `active`");
                self.life = Life::Ended;
                self.call("`inactive`", |pipeline| pipeline.event(state, services, event))
            }
            event => self.within("an event", |pipeline| pipeline.event(state, services, event)),
        }
    }

    fn run(&mut self, state: &mut ChannelState, services: &mut LoopServices, task: Box<dyn Any>) -> Result {
        self.within("a task", |pipeline| pipeline.run(state, services, task))
    }

    fn run_periodic(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        task: &mut dyn Any,
    ) -> Result<ControlFlow<()>> {
        self.within("a periodic task", |pipeline| pipeline.run_periodic(state, services, task))
    }

    fn forget_encoded(&mut self) {
        self.pipeline.forget_encoded();
    }

    fn handler_type(&self) -> TypeName {
        self.pipeline.handler_type()
    }

    fn types(&self) -> PipelineTypes {
        self.pipeline.types()
    }

    fn establish(&mut self) -> Option<&mut dyn Establish> {
        self.pipeline.establish()
    }

    fn take_establish(&mut self) -> Option<Box<dyn Establish>> {
        self.pipeline.take_establish()
    }

    fn note_replaced(&mut self) {
        self.is_replaced = true;
    }
}
