//! What follows when the filters of a new connection are established.
//!
//! The layer of the event loop implements it: it makes the pipeline, which the program chooses by
//! the results of the filters.

use crate::{
    channel::{ChannelShared, core::any_pipeline::AnyPipeline, peer::Peer},
    error::{Error, Result},
};
use std::sync::Arc;

/// Continues the start of a channel after its handshake. Exactly one of `established` and `failed`
/// is called.
pub(crate) trait Establish {
    /// A filter has replaced the peer's addresses. Called once, before the filters above it have
    /// started.
    ///
    /// # Errors
    /// An error if the connection is rejected; `failed` is called next.
    fn announced(&mut self, peer: &Peer) -> Result;

    /// Makes the pipeline.
    ///
    /// # Errors
    /// The error of the program's factory if it fails; `failed` is called next.
    fn pipeline(&mut self, peer: &Peer) -> Result<AnyPipeline>;

    /// The pipeline is installed, and `active` is called next. `share` makes a handle's state.
    fn established(self: Box<Self>, share: &mut dyn FnMut() -> Arc<ChannelShared>);

    /// The channel closes without a call of its handler.
    fn failed(self: Box<Self>, error: Error);
}
