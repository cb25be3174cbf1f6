//! Calls: requests with a completion for the response.

use super::{
    body_stream::{BodySender, BodyStream, StreamedResponse, body_stream},
    not_sent::NotSent,
};
use crate::{
    error::Error,
    http::{FullMessage, Headers, Part, Request, Response, StatusCode},
    sync::{Completer, Completion, cancellable},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// A request with a completion for its response, for the pipeline of
/// [`HttpClient::calls`](crate::http::HttpClient::calls).
///
/// [`ChannelPool::request`](crate::pool::ChannelPool::request) is the easiest way to make one: it
/// takes a connection, and repeats the call on another one if that is safe.
///
/// [`new`](Call::new) completes with the whole response, and [`streamed`](Call::streamed) with its
/// head. The request has a whole body or none, unless [`upload`](Call::upload) sends it in parts.
/// It cannot ask for another protocol. Other calls on the channel continue after the error of a
/// call, unless the connection ends.
///
/// # Time limit
/// A call has [60 seconds](Call::TIME_LIMIT), or the time set by [`timeout`](Call::timeout). The
/// time begins when the channel's loop takes the call. It ends with the last byte of the response,
/// or with the head of a streamed one. Neither interim responses nor slow bytes extend it.
///
/// # Giving up
/// Dropping the completion gives the call up, as does the time limit. If the call was written
/// already, its connection is discarded: it takes no further calls, and closes as soon as no other
/// call waits for a response on it. [`Completion::detach`] lets the call continue instead.
///
/// # Errors
/// - [`NotSent`], in an [`Error::Other`], if no byte was sent: the channel has closed or is
///   closing, or has too many outstanding calls ([`HttpSettings::max_pipelined`]).
/// - [`Error::Encode`] if the request cannot be encoded; no byte was sent.
/// - [`Error::TimedOut`] after the time limit.
/// - [`Error::ShutDown`] if the channel's loop is shut down.
/// - [`Error::Closed`] if the connection ends without a response, or
///   [`PeerError::Truncated`](crate::error::PeerError::Truncated) if TLS ends without its mark.
/// - The error of the channel otherwise, for example [`Error::Peer`] if the response is malformed.
///
/// [`HttpSettings::max_pipelined`]: crate::http::HttpSettings::max_pipelined
pub struct Call {
    pub(super) content: CallContent,
}

pub(super) enum CallContent {
    Request(NewCall),
    /// A part of the body of the call with this upload.
    Part(UploadId, Part<Request>),
}

pub(super) struct NewCall {
    pub(super) request: Request,
    pub(super) reply: Reply,
    pub(super) limit: Duration,
    pub(super) upload: Option<UploadId>,
}

/// The identity of an upload, which is compared by its address.
pub(super) type UploadId = Arc<()>;

impl Call {
    /// The time limit of calls that set none: 60 s.
    pub const TIME_LIMIT: Duration = Duration::from_secs(60);

    /// Returns a call to write to a channel, and the completion for its whole response.
    pub fn new(request: Request) -> (Call, Completion<FullMessage<Response>>) {
        let (completer, response) = cancellable(None, |_| ());
        (Call::with(request, ReplyTo::Whole(completer)), response)
    }

    /// Returns a call to write to a channel, and the completion for the head of its response. The
    /// body follows in the [`BodyStream`] of the [`StreamedResponse`].
    pub fn streamed(request: Request) -> (Call, Completion<StreamedResponse>) {
        let (completer, response) = cancellable(None, |_| ());
        (Call::with(request, ReplyTo::Streamed(completer)), response)
    }

    fn with(request: Request, to: ReplyTo) -> Call {
        let reply = Reply { to: Some(to), is_sent: false };
        Call {
            content: CallContent::Request(NewCall { request, reply, limit: Call::TIME_LIMIT, upload: None }),
        }
    }

    /// Sets the time limit, from the moment when the channel's loop takes the call to the last byte
    /// of the response, or to the head of a streamed one. `Duration::MAX` turns it off. Zero fails
    /// the call without sending it.
    pub fn timeout(mut self, limit: Duration) -> Self {
        if let CallContent::Request(call) = &mut self.content {
            call.limit = limit;
        }
        self
    }

    /// Returns a handle for the parts of the request's body, which is
    /// [`Body::Sized`](crate::http::Body::Sized) or [`Body::Streamed`](crate::http::Body::Streamed).
    ///
    /// The parts are written to the same channel behind the call. No other call may be written
    /// before the end of the body: it would fail. The channel's
    /// [writability](crate::Channel::is_writable) is the backpressure. If the call has ended
    /// earlier, parts are dropped. Without an end, the call waits until its time limit.
    ///
    /// ```
    /// use netwheel::{http::{Body, Call, Request}, prelude::*};
    ///
    /// # fn f(channel: &Channel<Call>) -> Result {
    /// let (mut call, response) = Call::new(Request::post("/notes", Body::Streamed));
    /// let upload = call.upload();
    /// channel.write(call)?;
    /// channel.write(upload.part("first "))?;
    /// channel.write(upload.part("second"))?;
    /// channel.write(upload.end())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn upload(&mut self) -> Upload {
        match &mut self.content {
            CallContent::Request(call) => Upload { id: call.upload.get_or_insert_default().clone() },
            CallContent::Part(id, _) => Upload { id: id.clone() },
        }
    }
}

/// A handle for the body of a [`Call`] that is sent in parts, from [`Call::upload`].
#[derive(Debug)]
pub struct Upload {
    id: UploadId,
}

impl Upload {
    /// Returns the next bytes of the body, to write to the channel of the call.
    pub fn part(&self, bytes: impl Into<Bytes>) -> Call {
        self.call(Part::Body(bytes.into()))
    }

    /// Returns the end of the body, to write to the channel of the call.
    pub fn end(self) -> Call {
        self.call(Part::end())
    }

    /// Like [`end`](Upload::end), with trailers, which a body of known length cannot have.
    pub fn end_with(self, trailers: Headers) -> Call {
        self.call(Part::End(trailers))
    }

    fn call(&self, part: Part<Request>) -> Call {
        Call { content: CallContent::Part(self.id.clone(), part) }
    }
}

/// What a call completes with: a whole response, or one whose body is read as it arrives.
pub(crate) trait CallAnswer: Sized + Send + 'static {
    /// Returns a call and its completion.
    fn call(request: Request) -> (Call, Completion<Self>);

    fn status(&self) -> StatusCode;
}

impl CallAnswer for FullMessage<Response> {
    fn call(request: Request) -> (Call, Completion<Self>) {
        Call::new(request)
    }

    fn status(&self) -> StatusCode {
        self.head.status()
    }
}

impl CallAnswer for StreamedResponse {
    fn call(request: Request) -> (Call, Completion<Self>) {
        Call::streamed(request)
    }

    fn status(&self) -> StatusCode {
        self.head.status()
    }
}

/// The completer of a call. Dropping it fails the call.
pub(super) struct Reply {
    to: Option<ReplyTo>,
    is_sent: bool,
}

enum ReplyTo {
    Whole(Completer<FullMessage<Response>>),
    Streamed(Completer<StreamedResponse>),
}

impl Reply {
    pub(super) fn is_streamed(&self) -> bool {
        matches!(self.to, Some(ReplyTo::Streamed(_)))
    }

    pub(super) fn complete(mut self, response: FullMessage<Response>) {
        if let Some(ReplyTo::Whole(completer)) = self.to.take() {
            completer.complete(Ok(response));
        }
    }

    /// Completes a streamed call. Returns the end of the stream that the connection fills. `wake`
    /// is called when the connection has to look at it.
    pub(super) fn begin(
        mut self,
        head: Response,
        event_loop: u32,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> BodySender {
        let (sender, body): (_, BodyStream) = body_stream(event_loop, wake);
        if let Some(ReplyTo::Streamed(completer)) = self.to.take() {
            completer.complete(Ok(StreamedResponse { head, body }));
        }
        sender
    }

    pub(super) fn fail(mut self, error: Error) {
        self.fail_with(error);
    }

    fn fail_with(&mut self, error: Error) {
        match self.to.take() {
            Some(ReplyTo::Whole(completer)) => completer.complete(Err(error)),
            Some(ReplyTo::Streamed(completer)) => completer.complete(Err(error)),
            None => {}
        }
    }

    /// Returns whether the caller has given up.
    pub(super) fn is_cancelled(&self) -> bool {
        match &self.to {
            Some(ReplyTo::Whole(completer)) => completer.is_cancelled(),
            Some(ReplyTo::Streamed(completer)) => completer.is_cancelled(),
            None => true,
        }
    }

    /// Records that the request was written, and has `wake` called if the caller gives up.
    pub(super) fn sent(&mut self, wake: impl Fn() + Send + 'static) {
        self.is_sent = true;
        match &mut self.to {
            Some(ReplyTo::Whole(completer)) => completer.on_cancel(wake),
            Some(ReplyTo::Streamed(completer)) => completer.on_cancel(wake),
            None => {}
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let error = if self.is_sent { Error::Closed } else { NotSent::error(Error::Closed) };
        self.fail_with(error);
    }
}
