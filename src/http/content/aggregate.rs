//! Collects the parts of a message.

use crate::{
    error::{Error, Result},
    http::{FullMessage, Headers, Part, Request, Response, error::HttpError},
    pipeline::{Stage, StageContext},
};
use bytes::{Bytes, BytesMut};
use std::fmt;

/// A [`Stage`] of a server that delivers whole requests, whose bodies have at most a given number
/// of bytes.
///
/// Memory grows with the bytes that have arrived, not with a declared length. The responses that
/// the handler writes pass unchanged, so they may still be streamed.
///
/// A longer body is answered with 413, before it is read if its length is declared. The handler's
/// `error` is not called for a request that it has not received.
///
/// The responses of a client are collected by [`HttpClient::calls`](crate::http::HttpClient::calls).
///
/// ```
/// use netwheel::{http::{Aggregate, HttpServer, FullMessage, Part, Request, Response}, prelude::*};
///
/// /// Answers with the length of the body.
/// struct Count;
///
/// impl Handler for Count {
///     type Read = FullMessage<Request>;
///     type Write = Part<Response>;
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, request: FullMessage<Request>) -> Result {
///         ctx.write(Response::ok(format!("{}\n", request.body.len())).into())
///     }
/// }
///
/// let pipeline = HttpServer::new().pipeline().stage(Aggregate::max(64 * 1024)).handler(Count);
/// # let _ = pipeline;
/// ```
#[doc(alias = "HttpObjectAggregator")]
pub struct Aggregate {
    collector: BodyCollector<Request>,
    /// Whether the last request was refused.
    is_refused: bool,
}

impl fmt::Debug for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregate").field("max", &self.collector.max).finish_non_exhaustive()
    }
}

impl Aggregate {
    /// Returns a stage for requests whose bodies have at most `bytes` bytes.
    pub fn max(bytes: usize) -> Self {
        Aggregate { collector: BodyCollector::new(bytes), is_refused: false }
    }
}

impl Stage for Aggregate {
    type ReadIn = Part<Request>;
    type ReadOut = FullMessage<Request>;
    type WriteIn = Part<Response>;
    type WriteOut = Part<Response>;

    fn read(
        &mut self,
        _: &mut StageContext<'_, Self>,
        part: Part<Request>,
    ) -> Result<Option<FullMessage<Request>>> {
        let collected = match part {
            Part::Head(head) => {
                let body = head.announced_body();
                let (is_streamed, length) = (body.is_streamed(), body.length());
                self.collector.begin(head, is_streamed, length)
            }
            Part::Body(bytes) => self.collector.add(bytes).map(|()| None),
            Part::End(trailers) => Ok(self.collector.end(trailers)),
        };
        match collected {
            Ok(message) => Ok(message),
            // The server answers it.
            Err(TooLong) => {
                self.is_refused = true;
                Err(HttpError::BodyTooLong.into())
            }
        }
    }

    /// Handles the error of a request that the handler has not received, which the server has
    /// answered.
    fn error(&mut self, ctx: &mut StageContext<'_, Self>, error: Error) -> Result {
        let is_unknown = self.is_refused || self.collector.current.is_some();
        let Some(cause) = HttpError::of_client(&error).filter(|_| is_unknown) else { return Err(error) };
        log::debug!("channel {}: {cause}", ctx.id());
        Ok(())
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

/// The message that is arriving.
pub(in crate::http) struct BodyCollector<H> {
    max: usize,
    current: Option<Box<Current<H>>>,
}

struct Current<H> {
    head: H,
    /// The only piece so far, which is passed on without a copy.
    first: Bytes,
    body: BytesMut,
}

/// The body is longer than allowed.
#[derive(Debug)]
pub(in crate::http) struct TooLong;

impl<H> BodyCollector<H> {
    pub(in crate::http) fn new(max: usize) -> Self {
        BodyCollector { max, current: None }
    }

    /// Begins with a head, and returns the message if no parts follow.
    pub(in crate::http) fn begin(
        &mut self,
        head: H,
        parts_follow: bool,
        length: Option<u64>,
    ) -> Result<Option<FullMessage<H>>, TooLong> {
        self.current = None;
        if !parts_follow {
            return Ok(Some(FullMessage { head, body: Bytes::new(), trailers: Headers::new() }));
        }
        if length.is_some_and(|length| length > self.max as u64) {
            return Err(TooLong);
        }
        self.current = Some(Box::new(Current { head, first: Bytes::new(), body: BytesMut::new() }));
        Ok(None)
    }

    /// Adds a piece of the body; drops it if the message was refused.
    pub(in crate::http) fn add(&mut self, bytes: Bytes) -> Result<(), TooLong> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let length = current.first.len() + current.body.len() + bytes.len();
        if length > self.max {
            self.current = None;
            return Err(TooLong);
        }
        if length == bytes.len() {
            current.first = bytes;
            return Ok(());
        }
        if current.body.is_empty() {
            current.body.extend_from_slice(&std::mem::take(&mut current.first));
        }
        current.body.extend_from_slice(&bytes);
        Ok(())
    }

    pub(in crate::http) fn end(&mut self, trailers: Headers) -> Option<FullMessage<H>> {
        let current = self.current.take()?;
        let Current { head, first, body } = *current;
        let body = if body.is_empty() { first } else { body.freeze() };
        Some(FullMessage { head, body, trailers })
    }
}
