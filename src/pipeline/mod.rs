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

mod chain;
mod codec;
mod context;
mod handler;
mod offload;
mod remote;
mod shared;
mod stage;

pub(crate) use chain::{Batch, DecodePass, Event, Links, Push};
pub use codec::Codec;
pub use context::Context;
pub use handler::Handler;
pub use remote::Remote;
pub(crate) use shared::{Encoder, EncodingMemo, SharedMessage, again, combine};
pub use stage::{Stage, StageContext};

#[cfg(test)]
use crate::channel::filter::{Filter, Filters};
use crate::{
    Result,
    channel::{Extras, IdleTimeouts, TimeLimits, TrafficShaping, WireLog},
};
use chain::{Assembled, CodecLink, Pull, StageLink};
use std::{fmt, marker::PhantomData};

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
    idle: IdleTimeouts,
    limits: TimeLimits,
    traffic: TrafficShaping,
    extras: Option<Box<Extras>>,
}

/// The beginning of a pipeline: nothing but the socket.
pub struct Start(());

impl Pipeline<Start> {
    /// An empty pipeline.
    #[expect(clippy::new_without_default, reason = "an empty pipeline is of use only as a beginning")]
    pub fn new() -> Self {
        Pipeline {
            links: Start(()),
            idle: IdleTimeouts::new(),
            limits: TimeLimits::new(),
            traffic: TrafficShaping::default(),
            extras: None,
        }
    }

    /// What turns bytes into messages.
    pub fn codec<C: Codec>(self, codec: C) -> Pipeline<CodecLink<C>> {
        self.with(|_| CodecLink(codec))
    }
}

impl<P> Pipeline<P> {
    /// What the channel watches for quiet from its first moment on; see [`IdleTimeouts`].
    pub fn idle(mut self, timeouts: IdleTimeouts) -> Self {
        self.idle = timeouts;
        self
    }

    /// What closes the channel if it is too slow, from its first moment on; see [`TimeLimits`].
    pub fn time_limits(mut self, limits: TimeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Writes what the channel does to the log: its events, and its bytes as a hex dump; see [`WireLog`].
    pub fn wire_log(mut self, wire_log: WireLog) -> Self {
        self.extras.get_or_insert_default().wire_log = Some(wire_log);
        self
    }

    /// Keeps a value with the channel from its first moment on; see [`Attributes`](crate::Attributes). A second one of the
    /// same type replaces the first.
    pub fn attribute<T: 'static>(mut self, value: T) -> Self {
        self.extras.get_or_insert_default().attributes.insert(value);
        self
    }

    /// How many bytes a second the channel may move, from its first moment on; see
    /// [`TrafficLimits`](crate::TrafficLimits), and [`SharedTraffic`](crate::SharedTraffic) for many channels together.
    pub fn traffic(mut self, shaping: impl Into<TrafficShaping>) -> Self {
        self.traffic = shaping.into();
        self
    }

    fn with<Q>(self, link: impl FnOnce(P) -> Q) -> Pipeline<Q> {
        let Pipeline { links, idle, limits, traffic, extras } = self;
        Pipeline { links: link(links), idle, limits, traffic, extras }
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
        let Pipeline { links, idle, limits, traffic, extras } = self;
        ChannelPipeline {
            links: Box::new(Assembled { links, handler }),
            idle,
            limits,
            traffic,
            extras,
            message: PhantomData,
        }
    }
}

/// A whole pipeline for one channel, to which messages of type `M` are written.
///
/// It is not `Send`: bootstraps take a factory, which is, and call it on the channel's loop.
pub struct ChannelPipeline<M> {
    links: Box<dyn Links>,
    idle: IdleTimeouts,
    limits: TimeLimits,
    traffic: TrafficShaping,
    extras: Option<Box<Extras>>,
    message: PhantomData<fn(M)>,
}

#[cfg(test)]
impl<M> ChannelPipeline<M> {
    /// Gives the channel byte filters; the first one is next to the transport.
    pub(crate) fn filters(mut self, filters: Vec<Box<dyn Filter>>) -> Self {
        self.extras.get_or_insert_default().filters = Some(Box::new(Filters::new(filters)));
        self
    }
}

/// A pipeline whose message type is forgotten.
pub(crate) struct AnyPipeline {
    pub(crate) links: Box<dyn Links>,
    pub(crate) idle: IdleTimeouts,
    pub(crate) limits: TimeLimits,
    pub(crate) traffic: TrafficShaping,
    pub(crate) extras: Option<Box<Extras>>,
}

impl<M> From<ChannelPipeline<M>> for AnyPipeline {
    fn from(pipeline: ChannelPipeline<M>) -> Self {
        let ChannelPipeline { links, idle, limits, traffic, extras, .. } = pipeline;
        AnyPipeline { links, idle, limits, traffic, extras }
    }
}

impl<M> fmt::Debug for ChannelPipeline<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelPipeline")
            .field("handler", &(self.links.handler_type())())
            .field("idle", &self.idle)
            .field("limits", &self.limits)
            .field("traffic", &self.traffic)
            .finish_non_exhaustive()
    }
}

/// What a pipeline factory may answer: a pipeline, or the reason why this connection gets none.
pub trait IntoPipeline {
    /// What is written to the channel.
    type Message: 'static;

    /// The pipeline.
    ///
    /// # Errors
    /// The connection is closed, and the error logged.
    fn into_pipeline(self) -> Result<ChannelPipeline<Self::Message>>;
}

impl<M: 'static> IntoPipeline for ChannelPipeline<M> {
    type Message = M;

    fn into_pipeline(self) -> Result<ChannelPipeline<M>> {
        Ok(self)
    }
}

impl<M: 'static> IntoPipeline for Result<ChannelPipeline<M>> {
    type Message = M;

    fn into_pipeline(self) -> Result<ChannelPipeline<M>> {
        self
    }
}
