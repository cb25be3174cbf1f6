//! A socket that outlives its channel, and how many of them a loop may have.
//!
//! Plain data. `event_loop::lingering_source` begins and ends lingering sockets. The slots of the
//! loop (`event_loop::sources`) count and order them.

use crate::{event_loop::load::Assignment, timer::QueueKey, transport::Stream};

/// The default limit of lingering sockets per loop.
pub(crate) const DEFAULT_MAX_LINGERING: usize = 1024;

/// A socket without a channel that waits for its peer to end the connection.
pub(crate) struct LingeringSocket {
    pub(in crate::event_loop) stream: Stream,
    /// Dropped after the stream: the connection counts until the socket is closed. `None` until the
    /// handler is dropped.
    pub(in crate::event_loop) assignment: Option<Assignment>,
    /// The close timeout.
    pub(in crate::event_loop) deadline: QueueKey,
    /// Whether to read until the kernel's buffer is empty, because no further event may come.
    pub(in crate::event_loop) to_the_end: bool,
    /// Whether the socket is in the loop's list of sources to be read without an event.
    pub(in crate::event_loop) listed: bool,
}
