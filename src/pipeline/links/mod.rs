//! How a typed pipeline nests.
//!
//! Inward the driver *pulls* one message through the nested links, which let go of everything
//! before the handler is called; so `ctx.write` may *push* through the very same links. Between two
//! messages the driver looks again whether to go on. One virtual call enters per event
//! ([`Links`](crate::channel::Links)), one leaves per write ([`Push`](crate::channel::Push) behind
//! a [`Scope`](crate::Scope)); everything between is monomorphised.
//!
//! The links are `pub` because they are parts of the type of every [`Pipeline`](super::Pipeline) in
//! the making, but this module is private: nobody outside can name or implement them.

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
