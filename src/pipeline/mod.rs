//! Pipelines: the links between a channel's bytes and the program's logic.
//!
//! A pipeline consists of a [`Codec`], any number of [`Stage`]s, and a [`Handler`]. Each channel
//! has its own, which a factory creates on the channel's loop when the connection is established:
//!
//! ```text
//!            read: towards the handler
//!          ─────────────────────────────────────────────────────────────►
//!   socket ◄─ bytes ─► Codec ◄─ messages ─► Stage ◄─ messages ─► Handler
//!          ◄─────────────────────────────────────────────────────────────
//!            write: towards the socket
//! ```
//!
//! Inbound, the loop decodes one message at a time and passes it through the stages to the handler.
//! Outbound, `ctx.write` passes a message through the stages, and the codec encodes it into the
//! channel's outbound buffer. The loop sends that buffer at the end of the read, or of the turn.
//!
//! ```
//! use bytes::Bytes;
//! use netwheel::{codec::LengthField, prelude::*};
//!
//! struct Echo;
//!
//! impl Handler for Echo {
//!     type Read = Bytes;
//!     type Write = Bytes;
//!
//!     fn read(&mut self, ctx: &mut Context<'_, Self>, frame: Bytes) -> Result {
//!         ctx.write(frame)
//!     }
//! }
//!
//! let pipeline = Pipeline::codec(LengthField::u32().max_len(64 * 1024)).handler(Echo);
//! # let _ = pipeline;
//! ```
//!
//! A handler that only reads messages can be a closure: [`PipelineBuilder::on_read`]. A function
//! that returns an unfinished pipeline, for a codec and stages that several pipelines share, is
//! shown at [`Links`].
//!
//! # Order of events
//!
//! | event | codec | stages, in the order from the socket | handler, last |
//! |---|---|---|---|
//! | connected | | `active` | `active` |
//! | bytes | `decode` | `read` | `read` |
//! | available input decoded | | `read_complete` | `read_complete` |
//! | writability | | `writability_changed` | `writability_changed` |
//! | end of the peer's stream | `decode_last` | `read_closed` | `read_closed` |
//! | shutdown | | `shutdown` | `shutdown` |
//! | idle | | | `idle` |
//! | error | | `error`, until a stage handles it | `error` |
//! | message written | `encode`, last | `write`, in the order towards the socket | |
//! | closed | | `inactive` | `inactive` |
//!
//! `active` is the first event and `inactive` the last. Callbacks of a channel are never nested:
//! events that a callback causes follow when it has returned.
//!
//! # Types that must match
//!
//! Neighbouring links must agree on their messages. A pipeline in the wrong order, or with a
//! missing link, does not compile. The compiler names the two messages that do not match, here
//! ``expected `Bytes`, found `String` ``:
//!
//! ```compile_fail,E0271
//! # use netwheel::prelude::*;
//! # use netwheel::codec::LengthField;
//! # struct Texts;
//! # impl Handler for Texts {
//! #   type Read = String; type Write = bytes::Bytes;
//! #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: String) -> Result { ctx.write(m.into()) }
//! # }
//! // The codec decodes `Bytes`, the handler reads `String`. A stage is missing.
//! let _ = Pipeline::codec(LengthField::u32()).handler(Texts);
//! ```
//!
//! ```compile_fail,E0271
//! # use netwheel::prelude::*;
//! # use netwheel::{codec::LengthField, stage::Heartbeat};
//! // The heartbeat writes `String`, the codec encodes `Bytes`.
//! let ping = || String::from("ping");
//! let _ = Pipeline::codec(LengthField::u32())
//!     .stage(Heartbeat::new(std::time::Duration::from_secs(30), ping));
//! ```
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
//! ```compile_fail,E0277
//! # use netwheel::prelude::*;
//! # use netwheel::codec::LengthField;
//! # fn serve(group: &EventLoopGroup) {
//! // A pipeline without a handler.
//! ServerBootstrap::new(group).pipeline(|_| Pipeline::codec(LengthField::u32()));
//! # }
//! ```
//!
//! # Another pipeline
//!
//! [`Context::replace_pipeline`] gives a channel another pipeline, for example when a protocol is
//! upgraded. Bytes that were not decoded go to the new codec. A factory that chooses between
//! protocols with different messages returns [`AnyPipeline`].

mod answer_waker;
mod builder;
mod channel_tasks;
pub(crate) mod codec;
mod handle_task;
pub(crate) mod handler;
pub(crate) mod handler_ref;
mod links;
mod offload;
mod read_fn;
mod spawned;
pub(crate) mod stage;

pub(crate) use crate::channel::Pipeline;
pub use crate::channel::core::{AnyPipeline, links::IntoPipeline};
pub use builder::PipelineBuilder;
pub(crate) use codec::Codec;
pub use handler::AnyHandler;
pub(crate) use handler::{ChannelContext, Context, Handler};
pub(crate) use links::combine;
pub use links::{Framed, Links, Staged};
pub(crate) use stage::{Stage, StageContext};

use crate::channel::PipelineSettings;

impl Pipeline<()> {
    /// Starts a pipeline with its codec, which turns the channel's bytes into messages and back.
    pub fn codec<C: Codec>(codec: C) -> PipelineBuilder<Framed<C>> {
        PipelineBuilder { links: Framed(codec), settings: PipelineSettings::default() }
    }
}
