//! The nesting of a typed pipeline.
//!
//! Inward, the driver *pulls* one message through the nested links. They return before the handler
//! is called, so `ctx.write` may *push* through the same links. Between two messages the driver
//! looks at the channel: a close, auto-read off, a flush or another pipeline takes effect there.
//! One virtual call enters per event ([`Links`](crate::channel::Links)), and one leaves per write
//! ([`Push`](crate::channel::Push) behind a [`Context`](crate::Context)). Everything in between is
//! monomorphised.
//!
//! A codec or stage that makes several messages of one input queues all but the first. The links
//! deliver queued messages before they decode more input; `DecodePass` has the limits.
//!
//! The links are `pub` because they are parts of the type of every [`Pipeline`](super::Pipeline)
//! while it is built. This module is private, so other crates can neither name nor implement them.

mod assembled;
mod codec_link;
mod pull;
mod shared;
mod stage_link;

pub(super) use assembled::Assembled;
pub(super) use codec_link::CodecLink;
pub(super) use pull::Pull;
pub(crate) use shared::combine;
pub(super) use stage_link::StageLink;
