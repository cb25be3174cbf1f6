//! The stage of a client: framing of requests, times, and the end of the connection.
//!
//! Invariants: the connection is reported as idle only while no response is outstanding and another
//! request may follow. The server's time runs only while the server owes something.

use super::{
    codec::{FramedRequest, RequestFraming},
    idle_limit::{default_idle_limit, idle_limit},
    outstanding::{Outstanding, OutstandingRequest},
};
use crate::{
    channel::Exchanges,
    clock::nanos,
    error::{Error, Resource, Result},
    http::{
        Body, Part, Request, Response, StatusCode, encode::unencodable, error::HttpError, head::RequestKind,
        settings::HttpSettings,
    },
    pipeline::{Stage, StageContext},
};
use bytes::Bytes;
use std::{rc::Rc, sync::Arc, time::Duration};

pub(super) struct ClientStage {
    settings: Arc<HttpSettings>,
    outstanding: Rc<Outstanding>,
    exchanges: Arc<Exchanges>,
    output: Output,
    /// Whether an end may follow the last request, which had no body. A proxy writes the end of
    /// the request it has read.
    may_end: bool,
    /// Whether the program waits for `100 Continue` before it sends the body.
    awaits_continue: bool,
    /// Whether no request follows on the connection.
    is_last: bool,
    /// Whether the current response closes the connection.
    closes: bool,
    /// Whether the head of the current response has arrived, besides informational ones.
    has_head: bool,
    /// How long the connection may be idle.
    idle_limit: Duration,
    /// The time for which the timer is set; `u64::MAX` if it is not.
    armed: u64,
    /// Since when nothing is outstanding, or the server owes the oldest response.
    since: u64,
    /// The number of bytes written.
    written: u64,
    /// Whether the oldest request may be unsent in part, so that sent bytes are progress with it.
    sends_oldest: bool,
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
    pub(super) fn new(
        settings: Arc<HttpSettings>,
        outstanding: Rc<Outstanding>,
        exchanges: Arc<Exchanges>,
    ) -> Self {
        ClientStage {
            idle_limit: default_idle_limit(&settings),
            settings,
            outstanding,
            exchanges,
            output: Output::Complete,
            may_end: false,
            awaits_continue: false,
            is_last: false,
            closes: false,
            has_head: false,
            armed: u64::MAX,
            since: 0,
            written: 0,
            sends_oldest: true,
        }
    }

    fn write_head(&mut self, ctx: &mut Ctx<'_>, mut request: Request) -> Result {
        let limit = self.settings.max_pipelined;
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
        let (kind, upgrades) = (RequestKind::of(request.method_bytes()), request.asks_for_upgrade());
        let is_last = !request.is_keep_alive();
        let expects_continue = request.headers().contains("expect");
        // Without a body, only methods that usually have one need a length (RFC 9110,
        // section 8.6).
        let usually_has_body = matches!(request.method(), "POST" | "PUT" | "PATCH");
        let is_empty = *request.announced_body() == Body::Empty;
        let (framing, body, output) = match request.take_body() {
            Body::Empty if usually_has_body => (RequestFraming::Length(0), Bytes::new(), Output::Complete),
            Body::Empty => (RequestFraming::None, Bytes::new(), Output::Complete),
            Body::Full(bytes) => (RequestFraming::Length(bytes.len() as u64), bytes, Output::Complete),
            Body::Sized(length) => (RequestFraming::Length(length), Bytes::new(), Output::Sized(length)),
            Body::Streamed => (RequestFraming::Chunked, Bytes::new(), Output::Chunked),
        };
        // Before the bytes of this request count as output.
        self.note_sent(ctx);
        let written_before = self.written;
        self.put(ctx, FramedRequest::Head { request, framing, body })?;
        if self.outstanding.len() == 0 {
            self.since = nanos(ctx.now());
        }
        self.outstanding.push(OutstandingRequest { kind, upgrades }, written_before);
        self.sends_oldest &= self.is_oldest_unsent(ctx);
        self.exchanges.begin();
        self.awaits_continue = expects_continue && output != Output::Complete;
        self.may_end = is_empty;
        self.output = output;
        self.is_last = is_last;
        self.arm(ctx);
        Ok(())
    }

    fn write_body(&mut self, ctx: &mut Ctx<'_>, bytes: Bytes) -> Result {
        let length = bytes.len() as u64;
        self.awaits_continue = false;
        match self.output {
            Output::Sized(left) if length > left => {
                ctx.close();
                Err(unencodable(format!("{length} bytes of a body of which {left} bytes are left")))
            }
            Output::Sized(left) => {
                self.put(ctx, FramedRequest::Data(bytes))?;
                self.output = Output::Sized(left - length);
                Ok(())
            }
            Output::Chunked => self.put(ctx, FramedRequest::Chunk(bytes)),
            Output::Complete => Err(unencodable("the body of a request that has not begun")),
        }
    }

    /// Writes a part of a request, and counts its bytes.
    fn put(&mut self, ctx: &mut Ctx<'_>, part: FramedRequest) -> Result {
        let before = ctx.pending_bytes();
        ctx.write_kept(part)?;
        self.written += ctx.pending_bytes().saturating_sub(before) as u64;
        Ok(())
    }

    /// Handles the end of a response.
    fn end(&mut self, ctx: &mut Ctx<'_>) {
        self.since = nanos(ctx.now());
        self.sends_oldest = self.is_oldest_unsent(ctx);
        self.has_head = false;
        let is_idle = self.outstanding.len() == 0;
        // A server that responds before the end of the request does not read the rest.
        let is_unsent = self.output != Output::Complete || ctx.pending_bytes() > 0;
        if self.closes || is_idle && (self.is_last || is_unsent) {
            self.end_connection(ctx);
        } else if self.outstanding.is_spoiled() {
            // The codec reports the bytes that follow as an error, which closes the channel.
            self.is_last = true;
            self.exchanges.end();
        } else {
            if is_idle {
                self.exchanges.finish();
            }
            self.arm(ctx);
        }
    }

    /// Closes the channel, and refuses further requests.
    fn end_connection(&mut self, ctx: &mut Ctx<'_>) {
        self.is_last = true;
        self.exchanges.end();
        ctx.close();
    }

    fn limit(&self) -> Duration {
        if self.outstanding.len() == 0 { self.idle_limit } else { self.settings.response_timeout }
    }

    /// Returns the time of the last progress.
    fn progress(&self, ctx: &Ctx<'_>) -> u64 {
        if self.outstanding.len() == 0 {
            return self.since;
        }
        // A long request is progress as well, but not with the response to an earlier one. Parts of
        // a head and informational responses are not, because a server can send them forever.
        let sent = if self.sends_oldest { nanos(ctx.last_written()) } else { 0 };
        let read = if self.has_head { nanos(ctx.last_read()) } else { 0 };
        self.since.max(sent).max(read)
    }

    /// Returns whether bytes of the oldest request are unsent, or may follow.
    fn is_oldest_unsent(&self, ctx: &Ctx<'_>) -> bool {
        self.outstanding
            .end_of_oldest()
            .is_none_or(|end| ctx.pending_bytes() as u64 > self.written.saturating_sub(end))
    }

    /// Counts the bytes that were sent so far as progress with the oldest request, and later ones
    /// only if they belong to it.
    fn note_sent(&mut self, ctx: &Ctx<'_>) {
        if self.sends_oldest && self.outstanding.len() > 0 {
            self.since = self.since.max(nanos(ctx.last_written()));
            self.sends_oldest = self.is_oldest_unsent(ctx);
        }
    }

    /// Returns whether the server owes a response or parts of it, or has to take bytes.
    fn is_owed(&self, ctx: &Ctx<'_>) -> bool {
        let waits_for_program = self.outstanding.len() == 1
            && self.output != Output::Complete
            && !self.awaits_continue
            && ctx.pending_bytes() == 0;
        let waits_for_limit = self.sends_oldest && ctx.pending_bytes() > 0 && ctx.writing_was_held_up();
        // Without input the program does not read the response, or its traffic limit does not.
        !waits_for_program && !waits_for_limit && ctx.expects_input() && !ctx.reading_was_held_up()
    }

    /// Sets the timer, unless it already expires before the current limit.
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
                if response.hands_over() {
                    // The bytes behind the head belong to the next pipeline.
                    ctx.pause_reading();
                } else if status.is_informational() {
                    if self.awaits_continue && status == StatusCode::CONTINUE {
                        self.awaits_continue = false;
                    }
                } else {
                    self.has_head = true;
                    self.closes |= response.closes();
                    match idle_limit(response.headers(), &self.settings) {
                        Some(limit) => self.idle_limit = limit,
                        None => self.closes = true,
                    }
                }
            }
            Part::Body(_) => {}
            Part::End(_) => self.end(ctx),
        }
        Ok(Some(part))
    }

    /// Ends a connection whose server has gone before it has taken all requests. Sending the rest
    /// would delay the end of the calls, which no response can follow.
    fn read_complete(&mut self, ctx: &mut Ctx<'_>) -> Result {
        if self.outstanding.has_ended() && self.outstanding.len() > 0 && ctx.pending_bytes() > 0 {
            self.exchanges.end();
            ctx.close_now();
        }
        Ok(())
    }

    fn write(&mut self, ctx: &mut Ctx<'_>, part: Part<Request>) -> Result {
        match part {
            Part::Head(request) => self.write_head(ctx, request),
            Part::Body(bytes) => self.write_body(ctx, bytes),
            Part::End(trailers) => {
                match self.output {
                    Output::Sized(0) => {}
                    Output::Chunked => self.put(ctx, FramedRequest::LastChunk(trailers))?,
                    Output::Sized(left) => {
                        ctx.close();
                        let why = format!("the body is {left} bytes shorter than its Content-Length");
                        return Err(unencodable(why));
                    }
                    Output::Complete if self.may_end => {}
                    Output::Complete => {
                        return Err(unencodable("the end of a request that has not begun"));
                    }
                }
                self.output = Output::Complete;
                self.may_end = false;
                Ok(())
            }
        }
    }

    fn timer(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.armed = u64::MAX;
        let (limit, progress) = (self.limit(), self.progress(ctx));
        let after = ctx.now().saturating_sub(Duration::from_nanos(progress));
        if limit.is_zero() || after < limit {
            self.note_sent(ctx);
            self.arm(ctx);
            return Ok(());
        }
        if self.outstanding.len() == 0 {
            self.end_connection(ctx);
            return Ok(());
        }
        if !self.is_owed(ctx) {
            self.since = nanos(ctx.now());
            self.arm(ctx);
            return Ok(());
        }
        self.exchanges.end();
        let error = Error::TimedOut { operation: "the response of a server", after };
        ctx.close_now_because(&error);
        Err(error)
    }

    fn error(&mut self, ctx: &mut Ctx<'_>, error: Error) -> Result {
        if HttpError::of_server(&error).is_some() {
            self.end_connection(ctx);
        }
        Err(error)
    }
}

impl Drop for ClientStage {
    /// The channel has closed, or another protocol has taken over.
    fn drop(&mut self) {
        self.exchanges.end();
    }
}
