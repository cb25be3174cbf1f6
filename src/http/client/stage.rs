//! The stage of a client: framing of requests, times, and the end of the connection.

use super::{
    codec::{FramedRequest, RequestFraming},
    outstanding::Outstanding,
};
use crate::{
    Error, Result,
    clock::nanos,
    error::Resource,
    http::{
        Body, HttpError, HttpSettings, Part, Request, Response, StatusCode, encode::unencodable,
        head::RequestKind,
    },
    pipeline::{Stage, StageContext},
};
use bytes::Bytes;
use std::{rc::Rc, sync::Arc, time::Duration};

pub(super) struct ClientStage {
    settings: Arc<HttpSettings>,
    outstanding: Rc<Outstanding>,
    output: Output,
    /// Whether no request follows on the connection.
    is_last: bool,
    /// Whether the current response closes the connection.
    closes: bool,
    /// The time for which the timer is set; `u64::MAX` if it is not.
    armed: u64,
    /// Since when nothing is outstanding, or the oldest request waits.
    since: u64,
}

/// How much of the current request was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// All of it.
    Complete,
    /// This number of bytes of the body is left.
    Sized(u64),
    Chunked,
}

type Ctx<'a> = StageContext<'a, ClientStage>;

impl ClientStage {
    pub(super) fn new(settings: Arc<HttpSettings>, outstanding: Rc<Outstanding>) -> Self {
        ClientStage {
            settings,
            outstanding,
            output: Output::Complete,
            is_last: false,
            closes: false,
            armed: u64::MAX,
            since: 0,
        }
    }

    fn write_head(&mut self, ctx: &mut Ctx<'_>, mut request: Request) -> Result {
        let limit = self.settings.pipelined;
        if self.output != Output::Complete {
            return Err(unencodable("a request before the end of the previous one"));
        }
        if self.is_last || self.closes {
            return Err(Error::Closed);
        }
        if self.outstanding.len() >= limit {
            return Err(Error::Full { resource: Resource::PipelinedRequests, limit });
        }
        for name in ["content-length", "transfer-encoding"] {
            if request.headers().contains(name) {
                return Err(unencodable(format!("{name} is added by the body: see `Body`")));
            }
        }
        let kind = RequestKind::of(request.method());
        let is_last = !request.is_keep_alive();
        // Without a body, only methods that usually have one need a length (RFC 9110,
        // section 8.6).
        let usually_has_body = matches!(request.method(), "POST" | "PUT" | "PATCH");
        let (framing, body, output) = match request.take_body() {
            Body::Empty if usually_has_body => (RequestFraming::Length(0), Bytes::new(), Output::Complete),
            Body::Empty => (RequestFraming::None, Bytes::new(), Output::Complete),
            Body::Full(bytes) => (RequestFraming::Length(bytes.len() as u64), bytes, Output::Complete),
            Body::Sized(length) => (RequestFraming::Length(length), Bytes::new(), Output::Sized(length)),
            Body::Streamed => (RequestFraming::Chunked, Bytes::new(), Output::Chunked),
        };
        ctx.write(FramedRequest::Head { request, framing, body })?;
        if self.outstanding.len() == 0 {
            self.since = nanos(ctx.now());
        }
        self.outstanding.push(kind);
        self.output = output;
        self.is_last = is_last;
        self.arm(ctx);
        Ok(())
    }

    fn write_body(&mut self, ctx: &mut Ctx<'_>, bytes: Bytes) -> Result {
        let length = bytes.len() as u64;
        match self.output {
            Output::Sized(left) if length > left => {
                ctx.close();
                Err(unencodable(format!("{length} bytes of a body of which {left} bytes are left")))
            }
            Output::Sized(left) => {
                ctx.write(FramedRequest::Data(bytes))?;
                self.output = Output::Sized(left - length);
                Ok(())
            }
            Output::Chunked => ctx.write(FramedRequest::Chunk(bytes)),
            Output::Complete => Err(unencodable("the body of a request that has not begun")),
        }
    }

    /// Handles the end of a response.
    fn end(&mut self, ctx: &mut Ctx<'_>) {
        self.since = nanos(ctx.now());
        let is_idle = self.outstanding.len() == 0;
        // A server that responds before the end of the request does not read the rest.
        if self.closes || is_idle && (self.is_last || self.output != Output::Complete) {
            self.is_last = true;
            ctx.close();
        } else {
            self.arm(ctx);
        }
    }

    fn limit(&self) -> Duration {
        if self.outstanding.len() == 0 { self.settings.keep_alive } else { self.settings.response_time }
    }

    /// Returns the time of the last progress.
    fn progress(&self, ctx: &Ctx<'_>) -> u64 {
        match self.outstanding.len() {
            0 => self.since,
            // A long request is progress as well.
            _ => self.since.max(nanos(ctx.last_read())).max(nanos(ctx.last_written())),
        }
    }

    /// Sets the timer, unless it expires before the current limit anyway.
    fn arm(&mut self, ctx: &mut Ctx<'_>) {
        let limit = self.limit();
        let deadline = self.progress(ctx).saturating_add(nanos(limit));
        if limit.is_zero() || self.armed <= deadline {
            return;
        }
        self.armed = deadline;
        let delay = deadline.saturating_sub(nanos(ctx.now())).max(1);
        ctx.wake_after(Duration::from_nanos(delay));
    }
}

impl Stage for ClientStage {
    type ReadIn = Part<Response>;
    type ReadOut = Part<Response>;
    type WriteIn = Part<Request>;
    type WriteOut = FramedRequest;

    fn active(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.since = nanos(ctx.now());
        self.arm(ctx);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Ctx<'_>, part: Part<Response>) -> Result<Option<Part<Response>>> {
        match &part {
            Part::Head(response) => {
                let status = response.status();
                let is_tunnel = self.outstanding.front() == Some(RequestKind::Connect) && status.is_success();
                if status == StatusCode::SWITCHING_PROTOCOLS || is_tunnel {
                    // The bytes behind the head belong to the next pipeline.
                    ctx.pause_reads();
                } else if !status.is_informational() {
                    self.closes |= response.closes();
                }
            }
            Part::Body(_) => {}
            Part::End(_) => self.end(ctx),
        }
        Ok(Some(part))
    }

    fn write(&mut self, ctx: &mut Ctx<'_>, part: Part<Request>) -> Result {
        match part {
            Part::Head(request) => self.write_head(ctx, request),
            Part::Body(bytes) => self.write_body(ctx, bytes),
            Part::End(trailers) => {
                match self.output {
                    Output::Sized(0) => {}
                    Output::Chunked => ctx.write(FramedRequest::LastChunk(trailers))?,
                    Output::Sized(left) => {
                        ctx.close();
                        let why = format!("the body is {left} bytes shorter than its Content-Length");
                        return Err(unencodable(why));
                    }
                    Output::Complete => {
                        return Err(unencodable("the end of a request that has not begun"));
                    }
                }
                self.output = Output::Complete;
                Ok(())
            }
        }
    }

    fn timer(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.armed = u64::MAX;
        let (limit, progress) = (self.limit(), self.progress(ctx));
        let after = ctx.now().saturating_sub(Duration::from_nanos(progress));
        if limit.is_zero() || after < limit {
            self.arm(ctx);
            return Ok(());
        }
        if self.outstanding.len() == 0 {
            self.is_last = true;
            ctx.close();
            return Ok(());
        }
        if !ctx.expects_input() {
            // The program does not read the response.
            self.since = nanos(ctx.now());
            self.arm(ctx);
            return Ok(());
        }
        ctx.close_now();
        Err(Error::TimedOut { operation: "the response of a server", after })
    }

    fn error(&mut self, ctx: &mut Ctx<'_>, error: Error) -> Result {
        if HttpError::of(&error).is_some() {
            self.is_last = true;
            ctx.close();
        }
        Err(error)
    }
}
