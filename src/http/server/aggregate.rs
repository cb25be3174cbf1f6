//! Collects the parts of a request.

use crate::{
    Result,
    http::{Headers, Part, Request, Response, StatusCode},
    pipeline::{Stage, StageContext},
};
use bytes::{Bytes, BytesMut};

/// A whole request, from [`Aggregate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<H> {
    /// The head.
    pub head: H,
    /// The whole body; empty if there is none.
    pub body: Bytes,
    /// The trailers of a chunked body.
    pub trailers: Headers,
}

/// A [`Stage`] that delivers whole requests, whose bodies have at most `max` bytes.
///
/// A longer body is answered with 413, before it is read if its length is declared. Memory grows
/// with the bytes that have arrived, not with the declared length. Responses pass unchanged, so
/// they may still be streamed.
///
/// ```
/// use netwheel::{http::{Aggregate, HttpServer, Message, Part, Request, Response}, prelude::*};
///
/// /// Answers with the length of the body.
/// struct Count;
///
/// impl Handler for Count {
///     type Read = Message<Request>;
///     type Write = Part<Response>;
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, request: Message<Request>) -> Result {
///         ctx.write(Response::ok(format!("{}\n", request.body.len())).into())
///     }
/// }
///
/// let pipeline = HttpServer::new().pipeline().stage(Aggregate::max(64 * 1024)).handler(Count);
/// # let _ = pipeline;
/// ```
#[derive(Debug)]
#[doc(alias = "HttpObjectAggregator")]
pub struct Aggregate {
    max: usize,
    collecting: Option<Box<Collecting>>,
}

#[derive(Debug)]
struct Collecting {
    head: Request,
    /// The only piece so far, which is passed on without a copy.
    first: Bytes,
    body: BytesMut,
}

impl Aggregate {
    /// Returns a stage for bodies of at most `bytes`.
    pub fn max(bytes: usize) -> Self {
        Aggregate { max: bytes, collecting: None }
    }

    fn refuse(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.collecting = None;
        ctx.write(Response::from(StatusCode::CONTENT_TOO_LARGE).close().into())
    }
}

impl Stage for Aggregate {
    type ReadIn = Part<Request>;
    type ReadOut = Message<Request>;
    type WriteIn = Part<Response>;
    type WriteOut = Part<Response>;

    fn read(
        &mut self,
        ctx: &mut StageContext<'_, Self>,
        part: Part<Request>,
    ) -> Result<Option<Message<Request>>> {
        match part {
            Part::Head(head) => {
                let body = head.announced_body();
                if !body.is_streamed() {
                    return Ok(Some(Message { head, body: Bytes::new(), trailers: Headers::new() }));
                }
                if body.length().is_some_and(|length| length > self.max as u64) {
                    self.refuse(ctx)?;
                    return Ok(None);
                }
                self.collecting =
                    Some(Box::new(Collecting { head, first: Bytes::new(), body: BytesMut::new() }));
            }
            Part::Body(bytes) => {
                let Some(collecting) = &mut self.collecting else { return Ok(None) };
                let length = collecting.first.len() + collecting.body.len() + bytes.len();
                if length > self.max {
                    self.refuse(ctx)?;
                } else if length == bytes.len() {
                    collecting.first = bytes;
                } else {
                    if collecting.body.is_empty() {
                        collecting.body.extend_from_slice(&std::mem::take(&mut collecting.first));
                    }
                    collecting.body.extend_from_slice(&bytes);
                }
            }
            Part::End(trailers) => {
                let Some(collected) = self.collecting.take() else { return Ok(None) };
                let Collecting { head, first, body } = *collected;
                let body = if body.is_empty() { first } else { body.freeze() };
                return Ok(Some(Message { head, body, trailers }));
            }
        }
        Ok(None)
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, part: Part<Response>) -> Result {
        ctx.write(part)
    }

    fn encoded_len_hint(
        part: &Part<Response>,
        next: impl Fn(&Part<Response>) -> Option<usize>,
    ) -> Option<usize> {
        next(part)
    }
}
