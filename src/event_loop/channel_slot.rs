//! A channel in its slot among the sources of a loop.
//!
//! Plain data; its driver is in `io`, its part as a source in `sources`.

use super::load::Assignment;
use crate::{channel::ChannelCore, transport::Stream};

/// A channel and its socket.
pub(crate) struct ChannelSlot {
    pub(crate) core: ChannelCore,
    /// None once the channel is closed and only `inactive` is still to come.
    pub(crate) stream: Option<Stream>,
    /// Dropped behind the core: the connection counts until its handler is dropped. A socket that
    /// outlives the channel takes the assignment over.
    pub(crate) assignment: Option<Assignment>,
}
