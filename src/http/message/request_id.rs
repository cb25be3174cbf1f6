//! The identity of a request, which late answers carry.

use crate::id::ChannelId;
use std::{fmt, num::NonZeroU32};

/// The identity of a request that a server has read, from [`Request::id`].
///
/// A handler that answers later gives the id to the task, the worker or the thread that writes the
/// answer, and adds it to the response with [`Response::for_request`]. The server writes the
/// response only if this request still waits for one. Otherwise writing fails with a
/// [`StaleResponse`](crate::http::StaleResponse), and the request that is current by then is not
/// affected.
///
/// Unique in the process until the loop of the connection has served 2^32 - 1 further requests.
/// Also useful as the key of a map of pending requests.
///
/// [`Request::id`]: crate::http::Request::id
/// [`Response::for_request`]: crate::http::Response::for_request
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    channel: ChannelId,
    /// Not 0, so that an `Option` of an id takes no more space: each message has one.
    number: NonZeroU32,
}

impl RequestId {
    /// Returns the id of the request with this number on a channel.
    pub(in crate::http) fn new(channel: ChannelId, number: NonZeroU32) -> Self {
        RequestId { channel, number }
    }

    /// Returns the channel that the request has arrived on.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.channel, self.number)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
