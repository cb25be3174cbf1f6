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
//! #   type Read = bytes::Bytes; type Write = bytes::Bytes;
//! #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
//! # }
//! // A handler before the codec: there is no such method yet.
//! let _ = Pipeline::handler(Echo).codec(LengthField::u32());
//! ```
//!
//! ```compile_fail,E0271
//! # use netwheel::prelude::*;
//! # use netwheel::codec::LengthField;
//! # struct Texts;
//! # impl Handler for Texts {
//! #   type Read = String; type Write = bytes::Bytes;
//! #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: String) -> Result { ctx.write(m.into()) }
//! # }
//! // The codec makes `Bytes`, the handler wants `String`: a stage is missing between them.
//! let _ = Pipeline::codec(LengthField::u32()).handler(Texts);
//! ```
//!
//! A channel may be given another pipeline while it lives ([`Context::replace_pipeline`](crate::Context::replace_pipeline)): that is
//! replaced whole, and bytes that were not decoded go to the new one.
//!
//! Filters (bytes to bytes, before the codec: TLS, a PROXY header) have their place between `new` and `codec`;
//! there are none yet.

mod answer_waker;
mod builder;
mod channel_tasks;
mod codec;
mod handler;
mod handler_ref;
mod links;
mod offload;
mod spawned;
mod stage;

pub use crate::channel::{IntoPipeline, Pipeline};
pub use builder::PipelineBuilder;
pub use codec::Codec;
pub use handler::{AnyHandler, ChannelContext, Context, Handler};
pub use handler_ref::HandlerRef;
pub(crate) use links::combine;
pub use stage::{Stage, StageContext};

use crate::channel::PipelineSettings;
use links::CodecLink;

impl Pipeline<()> {
    /// Starts a pipeline with the codec, which turns the channel's bytes into messages and back.
    pub fn codec<C: Codec>(codec: C) -> PipelineBuilder<CodecLink<C>> {
        PipelineBuilder { links: CodecLink(codec), settings: PipelineSettings::default() }
    }
}
