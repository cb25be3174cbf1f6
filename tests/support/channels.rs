//! Embedded channels with a [`Recorder`] as handler, and operations on the handle of a channel.

use super::{
    journal::Log,
    recorder::{Event, Recorder},
    wait::ms,
};
use bytes::Bytes;
use netwheel::{
    ChannelContext, Codec, Pipeline,
    channel::{ChannelOptions, TimeLimits},
    codec::{LengthField, Line, RawBytes},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::time::Duration;

// ---- pipelines ---------------------------------------------------------------------------------

pub(crate) fn lines(handler: Recorder) -> Pipeline<Bytes> {
    Pipeline::codec(Line::new()).handler(handler)
}

pub(crate) fn frames(handler: Recorder) -> Pipeline<Bytes> {
    Pipeline::codec(LengthField::u16()).handler(handler)
}

pub(crate) fn raw(handler: Recorder) -> Pipeline<Bytes> {
    Pipeline::codec(RawBytes).handler(handler)
}

// ---- embedded channels -------------------------------------------------------------------------

/// An embedded channel with a line codec.
pub(crate) fn embedded(handler: Recorder) -> EmbeddedChannel<Bytes> {
    EmbeddedChannel::new(lines(handler))
}

/// An embedded channel with a line codec and the given options.
pub(crate) fn embedded_with(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    embedded_pipeline(options, lines(handler))
}

/// An embedded channel without framing, for tests that count bytes.
pub(crate) fn embedded_raw(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    embedded_pipeline(options, raw(handler))
}

/// An embedded channel with the codec of the test.
pub(crate) fn with_codec<C: Codec<Read = Bytes, Write = Bytes>>(
    options: &ChannelOptions,
    codec: C,
    handler: Recorder,
) -> EmbeddedChannel<Bytes> {
    embedded_pipeline(options, Pipeline::codec(codec).handler(handler))
}

/// An embedded channel with the given pipeline.
pub(crate) fn embedded_pipeline(
    options: &ChannelOptions,
    pipeline: Pipeline<Bytes>,
) -> EmbeddedChannel<Bytes> {
    EmbeddedChannel::builder(pipeline).channel_options(options.clone()).build().unwrap()
}

// ---- with time limits --------------------------------------------------------------------------

/// The tick of the wheel of an embedded channel.
pub(crate) const TICK: Duration = ms(1);

/// An empty list of lines.
pub(crate) const NOTHING: [&str; 0] = [];

/// An embedded channel with time limits. Its log starts each line with the time.
pub(crate) struct Limited {
    pub(crate) channel: EmbeddedChannel<Bytes>,
    pub(crate) log: Log,
}

impl Limited {
    pub(crate) fn new(limits: TimeLimits) -> Self {
        Self::with(limits, |_, _| Ok(()))
    }

    pub(crate) fn with(
        limits: TimeLimits,
        mut hook: impl FnMut(&mut Context<'_, Recorder>, &Event) -> Result + 'static,
    ) -> Self {
        let (log, clock) = (Log::new(), ManualClock::new());
        let (inner, time) = (log.clone(), clock.clone());
        let handler = Recorder::exactly(&Log::new(), move |ctx, event| {
            if matches!(event, Event::Error(_) | Event::Inactive) {
                inner.push(format!("{:?} {event}", time.elapsed()));
            }
            hook(ctx, event)
        });
        let pipeline = Pipeline::codec(Line::new()).time_limits(limits).handler(handler);
        let channel = EmbeddedChannel::builder(pipeline).clock(clock).build().unwrap();
        Limited { channel, log }
    }

    pub(crate) fn advance(&mut self, by: Duration) -> Vec<String> {
        self.channel.advance(by);
        self.log.take()
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.channel.write_inbound(bytes).unwrap();
    }

    pub(crate) fn set(&mut self, limits: TimeLimits) {
        let change = move |ctx: &mut ChannelContext<'_, Bytes>| {
            ctx.set_time_limits(limits);
            assert_eq!(ctx.time_limits(), limits);
            Ok(())
        };
        self.channel.channel().execute(change).unwrap();
        self.channel.run_pending();
    }

    pub(crate) fn write(&mut self) {
        self.channel.channel().write("line".into()).unwrap();
        self.channel.run_pending();
    }
}

// ---- through the handle of a channel -----------------------------------------------------------

/// Requests a read.
#[track_caller]
pub(crate) fn read(channel: &Channel<Bytes>) {
    channel
        .execute(|ctx| {
            ctx.read();
            Ok(())
        })
        .unwrap();
}

#[track_caller]
pub(crate) fn set_auto_read(channel: &Channel<Bytes>, on: bool) {
    channel
        .execute(move |ctx| {
            ctx.set_auto_read(on);
            Ok(())
        })
        .unwrap();
}

/// Logs its name when it is dropped.
pub(crate) struct Guard(pub(crate) &'static str, pub(crate) Log);

impl Guard {
    pub(crate) fn runs(&self) -> Result {
        panic!("{} must not run", self.0);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.1.push(format!("{} gone", self.0));
    }
}
