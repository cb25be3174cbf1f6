//! The interface between a channel and the links of its pipeline.
//!
//! One virtual call enters a pipeline for each event ([`ErasedPipeline`](super::ErasedPipeline)),
//! and one leaves the handler for each write ([`Push`]). The pipeline layer implements both; the
//! channel layer does not know how.

#[cfg(feature = "simulation")]
mod checked;
mod decode_pass;
mod establish;
mod pipeline;
mod placeholder;

#[cfg(feature = "simulation")]
pub(in crate::channel) use checked::checked;
pub(crate) use decode_pass::{Batch, DecodePass, MAX_EXTRA_MESSAGES};
pub(crate) use establish::Establish;
pub use pipeline::{IntoPipeline, Pipeline};
pub(in crate::channel) use placeholder::Placeholder;

use super::{ChannelState, services::LoopServices};
use crate::{channel::SizeHint, error::Result};

/// The outbound side of the links, for a writer that knows only the message type.
pub(crate) trait Push<M> {
    /// Encodes a message into the channel's outbound buffer.
    fn push(&mut self, state: &mut ChannelState, services: &mut LoopServices, message: M) -> Result;

    /// Encodes a message, and puts it into the place of a waiting message with this key.
    fn push_latest(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        key: u64,
        message: M,
    ) -> Result;

    /// Returns the function that estimates the encoded size of a message.
    fn size_hint(&self) -> SizeHint;
}
