//! The builder that adds stages and the handler to a codec.

use super::{
    Handler, Pipeline, Stage,
    links::{Assembled, Pull, StageLink},
};
use crate::channel::{IdleTimeouts, PipelineSettings, Push, TimeLimits, TrafficShaping, WireLog};
use std::marker::PhantomData;

/// An unfinished pipeline: `Pipeline::codec`, any number of `stage`s, then `handler`.
///
/// ```
/// # use netwheel::prelude::*;
/// # use netwheel::codec::LengthField;
/// # use std::time::Duration;
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// let pipeline = Pipeline::codec(LengthField::u32())
///     .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
///     .handler(Echo);
/// ```
pub struct PipelineBuilder<P> {
    pub(super) links: P,
    pub(super) settings: PipelineSettings,
}

impl<P> PipelineBuilder<P> {
    /// What the channel watches for quiet from its first moment on; see [`IdleTimeouts`].
    pub fn idle(mut self, timeouts: IdleTimeouts) -> Self {
        self.settings.idle = timeouts;
        self
    }

    /// What closes the channel if it is too slow, from its first moment on; see [`TimeLimits`].
    pub fn time_limits(mut self, limits: TimeLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Writes what the channel does to the log: its events, and its bytes as a hex dump; see [`WireLog`].
    pub fn wire_log(mut self, wire_log: WireLog) -> Self {
        self.settings.extras.set_wire_log(Some(wire_log));
        self
    }

    /// Keeps a value with the channel from its first moment on; see [`Attributes`](crate::Attributes). A second one of the
    /// same type replaces the first.
    pub fn attribute<T: 'static>(mut self, value: T) -> Self {
        self.settings.extras.attributes_mut().insert(value);
        self
    }

    /// How many bytes a second the channel may move, from its first moment on; see
    /// [`TrafficLimits`](crate::TrafficLimits), and [`SharedTraffic`](crate::SharedTraffic) for many channels together.
    pub fn traffic(mut self, shaping: impl Into<TrafficShaping>) -> Self {
        self.settings.traffic = shaping.into();
        self
    }

    fn with<Q>(self, link: impl FnOnce(P) -> Q) -> PipelineBuilder<Q> {
        PipelineBuilder { links: link(self.links), settings: self.settings }
    }
}

impl<P: Pull> PipelineBuilder<P> {
    /// What turns messages into other messages.
    pub fn stage<S: Stage<ReadIn = P::Item>>(self, stage: S) -> PipelineBuilder<StageLink<P, S>>
    where
        P: Push<S::WriteOut>,
    {
        self.with(|before| StageLink { before, stage })
    }

    /// What does the program's work; ends the pipeline.
    pub fn handler<H: Handler<Read = P::Item>>(self, handler: H) -> Pipeline<H::Write>
    where
        P: Push<H::Write>,
    {
        let PipelineBuilder { links, settings } = self;
        Pipeline { links: Box::new(Assembled { links, handler }), settings, message: PhantomData }
    }
}
