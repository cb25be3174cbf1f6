//! Pipelines: what stands between a channel's bytes and a program's logic.
//!
//! A pipeline is a type. Its links are put together once per channel, on the channel's loop:
//!
//! ```text
//!            inbound: pulled, one message at a time
//!   ───────────────────────────────────────────────────────►
//!   socket ── bytes ── Codec ── Stage* ── Handler
//!   ◄───────────────────────────────────────────────────────
//!            outbound: pushed by ctx.write, into one buffer
//! ```
//!
//! The seams are associated types, so links in a wrong order, or of types that do not meet, do not compile:
//!
//! ```compile_fail,E0599
//! # use netwheel::prelude::*;
//! # use netwheel::codec::LengthField;
//! # struct Echo;
//! # impl Handler for Echo {
//! #   type In = bytes::Bytes; type Out = bytes::Bytes;
//! #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
//! # }
//! // A handler before the codec: there is no such method yet.
//! let _ = Pipeline::new().handler(Echo).codec(LengthField::u32());
//! ```
//!
//! ```compile_fail,E0271
//! # use netwheel::prelude::*;
//! # use netwheel::codec::LengthField;
//! # struct Texts;
//! # impl Handler for Texts {
//! #   type In = String; type Out = bytes::Bytes;
//! #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: String) -> Result { ctx.write(m.into()) }
//! # }
//! // The codec makes `Bytes`, the handler wants `String`: a stage is missing between them.
//! let _ = Pipeline::new().codec(LengthField::u32()).handler(Texts);
//! ```
//!
//! A channel may be given another pipeline while it lives ([`Scope::replace_pipeline`](crate::Scope::replace_pipeline)): that is
//! replaced whole, and bytes that were not decoded go to the new one.
//!
//! Filters (bytes to bytes, before the codec: TLS, a PROXY header) have their place between `new` and `codec`;
//! there are none yet.

mod codec;
mod handler;
mod links;
mod offload;
mod remote;
mod stage;

pub use crate::channel::{ChannelPipeline, IntoPipeline};
pub use codec::Codec;
pub use handler::{Context, Handler};
pub(crate) use links::combine;
pub use remote::Remote;
pub use stage::{Stage, StageContext};

use crate::channel::{IdleTimeouts, PipelineSettings, Push, TimeLimits, TrafficShaping, WireLog};
use links::{Assembled, CodecLink, Pull, StageLink};
use std::marker::PhantomData;

/// A pipeline in the making: `new`, `codec`, any number of `stage`s, `handler`.
///
/// ```
/// # use netwheel::prelude::*;
/// # use netwheel::codec::LengthField;
/// # use std::time::Duration;
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type In = bytes::Bytes; type Out = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// let pipeline = Pipeline::new()
///     .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
///     .codec(LengthField::u32())
///     .handler(Echo);
/// ```
pub struct Pipeline<P> {
    links: P,
    settings: PipelineSettings,
}

/// The beginning of a pipeline: nothing but the socket.
pub struct Start(());

impl Pipeline<Start> {
    /// An empty pipeline.
    #[expect(clippy::new_without_default, reason = "an empty pipeline is of use only as a beginning")]
    pub fn new() -> Self {
        Pipeline { links: Start(()), settings: PipelineSettings::default() }
    }

    /// What turns bytes into messages.
    pub fn codec<C: Codec>(self, codec: C) -> Pipeline<CodecLink<C>> {
        self.with(|_| CodecLink(codec))
    }
}

impl<P> Pipeline<P> {
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

    fn with<Q>(self, link: impl FnOnce(P) -> Q) -> Pipeline<Q> {
        Pipeline { links: link(self.links), settings: self.settings }
    }
}

impl<P: Pull> Pipeline<P> {
    /// What turns messages into other messages.
    pub fn stage<S: Stage<In = P::Item>>(self, stage: S) -> Pipeline<StageLink<P, S>>
    where
        P: Push<S::WriteOut>,
    {
        self.with(|before| StageLink { before, stage })
    }

    /// What does the program's work; ends the pipeline.
    pub fn handler<H: Handler<In = P::Item>>(self, handler: H) -> ChannelPipeline<H::Out>
    where
        P: Push<H::Out>,
    {
        let Pipeline { links, settings } = self;
        ChannelPipeline { links: Box::new(Assembled { links, handler }), settings, message: PhantomData }
    }
}
