//! Calls: requests with a completion for the whole response.

use super::not_sent::NotSent;
use crate::{
    error::{Error, Result},
    http::{Message, Request, Response},
    sync::{Completer, Completion, cancellable},
};
use std::time::Duration;

/// A request with a completion for its whole response, for the pipeline of
/// [`HttpClient::calls`](crate::http::HttpClient::calls).
///
/// [`ChannelPool::call`](crate::pool::ChannelPool::call) is the easiest way to make one: it takes a
/// connection, and repeats the call on another one if that is safe.
///
/// The request must have no body or a whole one, and cannot ask for another protocol. A call fails
/// alone: whatever its error, other calls on the channel continue, unless the connection ends.
///
/// # Time limit
/// A call has [60 seconds](Call::TIME_LIMIT), or the time set by [`within`](Call::within), from the
/// moment when the channel's loop takes it to the last byte of the response. Neither interim
/// responses nor slow bytes extend it.
///
/// # Giving up
/// Dropping the completion gives the call up, as does the time limit. If the call was written
/// already, its connection is discarded: it takes no further calls, and closes as soon as no other
/// call waits for a response on it. [`Completion::detach`] lets the call continue instead.
///
/// # Errors
/// The completion fails with
///
/// - [`NotSent`], in an [`Error::Other`], if no byte was sent: the channel has closed or is
///   closing, or has too many outstanding calls ([`HttpSettings::pipelined`]),
/// - [`Error::Encode`] if the request cannot be encoded; no byte was sent,
/// - [`Error::TimedOut`] after the time limit,
/// - [`Error::Closed`] if the connection ends without a response,
/// - the error of the channel otherwise, for example [`Error::Peer`] if the response is malformed.
///
/// [`HttpSettings::pipelined`]: crate::http::HttpSettings::pipelined
pub struct Call {
    pub(super) request: Request,
    pub(super) reply: Reply,
    pub(super) limit: Duration,
}

impl Call {
    /// The time limit of calls that set none: 60 s.
    pub const TIME_LIMIT: Duration = Duration::from_secs(60);

    /// Returns a call to write to a channel, and the completion for its response.
    pub fn new(request: Request) -> (Call, Completion<Message<Response>>) {
        let (completer, response) = cancellable(None, |_| ());
        (Call { request, reply: Reply::new(completer), limit: Call::TIME_LIMIT }, response)
    }

    /// Sets the time limit, from the moment when the channel's loop takes the call to the last byte
    /// of the response. `Duration::MAX` turns it off. Zero fails the call without sending it.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

/// The completer of a call. Dropping it fails the call.
pub(super) struct Reply {
    completer: Option<Completer<Message<Response>>>,
    is_sent: bool,
}

impl Reply {
    fn new(completer: Completer<Message<Response>>) -> Self {
        Reply { completer: Some(completer), is_sent: false }
    }

    pub(super) fn complete(mut self, result: Result<Message<Response>>) {
        if let Some(completer) = self.completer.take() {
            completer.complete(result);
        }
    }

    /// Returns whether the caller has given up.
    pub(super) fn is_cancelled(&self) -> bool {
        self.completer.as_ref().is_none_or(Completer::is_cancelled)
    }

    /// Records that the request was written, and has `wake` called if the caller gives up.
    pub(super) fn sent(&mut self, wake: impl Fn() + Send + 'static) {
        self.is_sent = true;
        if let Some(completer) = &mut self.completer {
            completer.on_cancel(wake);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(completer) = self.completer.take() {
            let error = if self.is_sent { Error::Closed } else { NotSent::error(Error::Closed) };
            completer.complete(Err(error));
        }
    }
}
