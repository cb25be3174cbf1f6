//! The builder that adds stages and the handler to a codec.

use super::{Handler, Links, Pipeline, Stage, Staged, links::Assembled};
use crate::channel::{IdleTimeouts, PipelineSettings, TimeLimits, TrafficShaping, WireLog};
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
pub struct PipelineBuilder<L> {
    pub(super) links: L,
    pub(super) settings: PipelineSettings,
}

impl<L> PipelineBuilder<L> {
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
}

impl<L: Links> PipelineBuilder<L> {
    /// Adds a stage behind the codec and the stages so far.
    ///
    /// `S::ReadIn` and `S::WriteOut` must be the messages of the links before it.
    pub fn stage<S: Stage<ReadIn = L::Read, WriteOut = L::Write>>(
        self,
        stage: S,
    ) -> PipelineBuilder<Staged<L, S>> {
        PipelineBuilder { links: Staged { before: self.links, stage }, settings: self.settings }
    }

    /// Adds the handler and completes the pipeline.
    ///
    /// `H::Read` and `H::Write` must be the messages of the links before it.
    pub fn handler<H: Handler<Read = L::Read, Write = L::Write>>(self, handler: H) -> Pipeline<H::Write> {
        let PipelineBuilder { links, settings } = self;
        Pipeline { links: Box::new(Assembled { links, handler }), settings, message: PhantomData }
    }
}
