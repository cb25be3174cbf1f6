//! A handler with a name, which stands before each call that it writes down, and pipelines that end in it: to see who is told
//! what when one pipeline takes over from another.

use super::recorder::{Call, Log};
use bytes::Bytes;
use netwheel::{
    ChannelOptions, ChannelPipeline, Error,
    codec::{LengthField, Line, RawBytes},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

type Hook = Box<dyn FnMut(&mut Context<'_, Named>, &Call) -> Result>;

/// Writes down each call with its name before it, then does what the test wants.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) log: Log,
    hook: Hook,
    /// Whether an error closes.
    pub(crate) closes: bool,
}

pub(crate) fn named(
    name: &'static str,
    log: &Log,
    hook: impl FnMut(&mut Context<'_, Named>, &Call) -> Result + 'static,
) -> Named {
    Named { name, log: log.clone(), hook: Box::new(hook), closes: true }
}

/// Does nothing but close on errors.
pub(crate) fn silent(name: &'static str, log: &Log) -> Named {
    named(name, log, |_, _| Ok(()))
}

impl Named {
    fn call(&mut self, ctx: &mut Context<'_, Self>, call: Call) -> Result {
        self.log.push(format!("{} {call}", self.name));
        (self.hook)(ctx, &call)
    }
}

impl Handler for Named {
    type In = Bytes;
    type Out = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Call::Active)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.call(ctx, Call::Read(message))
    }

    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Call::ReadComplete)
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        self.call(ctx, Call::Writability(writable))
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        self.call(ctx, Call::Idle(event))
    }

    /// Written down as the read of a message that no codec here makes.
    fn input_shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Call::Read("(end)".into()))
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        if self.closes {
            ctx.close();
        }
        self.call(ctx, Call::Error(error.to_string()))
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Call::Inactive)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.log.push(format!("{} drop", self.name));
    }
}

pub(crate) fn lines(handler: Named) -> ChannelPipeline<Bytes> {
    Pipeline::new().codec(Line::new()).handler(handler)
}

pub(crate) fn frames(handler: Named) -> ChannelPipeline<Bytes> {
    Pipeline::new().codec(LengthField::u16()).handler(handler)
}

pub(crate) fn raw(handler: Named) -> ChannelPipeline<Bytes> {
    Pipeline::new().codec(RawBytes).handler(handler)
}

pub(crate) fn embedded(options: &ChannelOptions, pipeline: ChannelPipeline<Bytes>) -> EmbeddedChannel<Bytes> {
    EmbeddedChannel::with(pipeline, options, ManualClock::new(), Duration::from_millis(1)).unwrap()
}

/// Says when it is dropped.
pub(crate) struct Guard(pub(crate) &'static str, pub(crate) Log);

impl Guard {
    pub(crate) fn runs(&self) -> Result {
        panic!("{} runs", self.0);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.1.push(format!("{} gone", self.0));
    }
}
