//! The parts of a message, and a whole one.

use super::{headers::Headers, request::Request, response::Response};
use bytes::Bytes;

/// A part of a message: head, body and end.
///
/// A request or response is read as one `Head`, any number of `Body` parts, and one `End`.
/// `Body` parts are as long as the bytes that have arrived, and share the memory of the read
/// buffer.
///
/// A message is written as a `Head`. If its body [is streamed](crate::http::Body::is_streamed), `Body`
/// parts and an `End` follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<H> {
    /// The beginning of a message.
    Head(H),
    /// The next bytes of its body.
    Body(Bytes),
    /// The end of the message, with the trailers of a chunked body.
    End(Headers),
}

impl<H> Part<H> {
    /// Returns an end without trailers.
    pub fn end() -> Self {
        Part::End(Headers::new())
    }
}

impl From<Response> for Part<Response> {
    fn from(head: Response) -> Self {
        Part::Head(head)
    }
}

impl From<Request> for Part<Request> {
    fn from(head: Request) -> Self {
        Part::Head(head)
    }
}

/// A whole message: a request from [`Aggregate`](crate::http::Aggregate), or the response to a
/// [`Call`](crate::http::Call).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullMessage<H> {
    /// The head.
    pub head: H,
    /// The whole body; empty if there is none.
    pub body: Bytes,
    /// The trailers of a chunked body.
    pub trailers: Headers,
}
