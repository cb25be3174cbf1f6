//! A channel with time limits, and what its handler is told when.

use super::recorder::{Call, Log, Recorder};
use bytes::Bytes;
use netwheel::{
    ChannelOptions, Scope, TimeLimits,
    codec::Line,
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const TICK: Duration = Duration::from_millis(1);
pub(crate) const NOTHING: [&str; 0] = [];

/// A channel with limits; its log has times.
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
        mut hook: impl FnMut(&mut Context<'_, Recorder>, &Call) -> Result + 'static,
    ) -> Self {
        let (log, clock) = (Log::new(), ManualClock::new());
        let (inner, time) = (log.clone(), clock.clone());
        let handler = Recorder::exactly(&Log::new(), move |ctx, call| {
            if matches!(call, Call::Error(_) | Call::Inactive) {
                inner.push(format!("{:?} {call}", time.elapsed()));
            }
            hook(ctx, call)
        });
        let pipeline = Pipeline::new().time_limits(limits).codec(Line::new()).handler(handler);
        let channel = EmbeddedChannel::with(pipeline, &ChannelOptions::new(), clock, TICK).unwrap();
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
        let change = move |scope: &mut Scope<'_, Bytes>| {
            scope.set_time_limits(limits);
            assert_eq!(scope.time_limits(), limits);
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
