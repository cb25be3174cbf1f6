//! The stage that pairs responses with calls.
//!
//! Invariants: a call completes once. A call that fails here leaves the others alone. When a call
//! that was written is given up, the connection takes no further call, and closes when no call
//! waits on it. A response that is streamed is read only as fast as its consumer takes it.

use super::{
    HttpClient,
    body_stream::BodySender,
    call::{Call, CallContent, NewCall, Reply, UploadId},
    not_sent::NotSent,
};
use crate::{
    channel::{Exchanges, Pipeline, ShutdownCause},
    clock::nanos,
    error::{Error, Result},
    http::{
        Body, Headers, Part, Request, Response,
        content::{BodyCollector, TooLong},
        encode::unencodable,
        error::HttpError,
    },
    pipeline::{Context, Handler, Stage, StageContext},
};
use bytes::Bytes;
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// Returns the pipeline of [`HttpClient::calls`].
pub(super) fn pipeline(client: &HttpClient, max_body: usize) -> Pipeline<Call> {
    let exchanges = Arc::new(Exchanges::new());
    let calls = Calls {
        exchanges: exchanges.clone(),
        calls: VecDeque::new(),
        collector: BodyCollector::new(max_body),
        upload: None,
        error: None,
        is_draining: false,
    };
    // The codec does not know which responses are streamed. The collector limits the others.
    let mut settings = client.settings.clone();
    if settings.max_body < max_body as u64 {
        Arc::make_mut(&mut settings).max_body = max_body as u64;
    }
    client.pipeline_with(settings, exchanges).stage(calls).handler(NoMessages)
}

/// Pairs responses with calls.
struct Calls {
    exchanges: Arc<Exchanges>,
    /// The calls whose responses have not arrived, oldest first.
    calls: VecDeque<SentCall>,
    /// The response that is arriving, if its call wants the whole of it.
    collector: BodyCollector<Response>,
    /// The upload of the last call, until its end.
    upload: Option<UploadId>,
    /// The first error of the channel, for the calls that it fails.
    error: Option<Error>,
    /// Whether a call was given up, so that the connection must not be used again.
    is_draining: bool,
}

struct SentCall {
    progress: Progress,
    deadline: u64,
    limit: Duration,
}

enum Progress {
    /// The call waits for its response, or for the head of a streamed one.
    Waiting(Reply),
    /// The body is arriving.
    Streaming(BodySender),
    GivenUp,
}

type Ctx<'a> = StageContext<'a, Calls>;

impl Calls {
    /// Writes a call's request.
    fn send(&mut self, ctx: &mut Ctx<'_>, request: Request, has_upload: bool) -> Result {
        if self.is_draining {
            return Err(NotSent::error(Error::Closed));
        }
        if matches!(request.announced_body(), Body::Sized(_) | Body::Streamed) != has_upload {
            return Err(unencodable("a body in parts needs `Call::upload`, and a whole one has none"));
        }
        if request.method() == "CONNECT" || request.asks_for_upgrade() {
            return Err(unencodable("a call that asks for another protocol"));
        }
        ctx.write(request.into()).map_err(|error| match error {
            Error::Closed | Error::Full { .. } => NotSent::error(error),
            error => error,
        })
    }

    /// Writes a call. A failure is the call's, so it does not reach the channel's `error`.
    fn begin(&mut self, ctx: &mut Ctx<'_>, call: NewCall) {
        let NewCall { request, mut reply, limit, upload } = call;
        if reply.is_cancelled() {
            return;
        }
        if limit.is_zero() {
            return reply.fail(NotSent::error(timed_out(limit)));
        }
        if let Err(error) = self.send(ctx, request, upload.is_some()) {
            return reply.fail(error);
        }
        reply.sent(ctx.waker());
        let deadline = nanos(ctx.now()).saturating_add(nanos(limit));
        self.calls.push_back(SentCall { progress: Progress::Waiting(reply), deadline, limit });
        self.upload = upload;
        self.arm(ctx);
    }

    /// Writes a part of the last call's body, unless the call has ended.
    fn upload(&mut self, ctx: &mut Ctx<'_>, id: &UploadId, part: Part<Request>) {
        if !self.upload.as_ref().is_some_and(|current| Arc::ptr_eq(current, id)) {
            return;
        }
        if matches!(part, Part::End(_)) {
            self.upload = None;
        }
        let Err(error) = ctx.write(part) else { return };
        // The server would take the next request for the rest of this body.
        self.upload = None;
        if let Some(call) = self.calls.back_mut() {
            call.give_up(error);
        }
        self.drain(ctx);
    }

    /// Gives up the calls that have timed out, and those whose callers have gone.
    fn give_up(&mut self, ctx: &mut Ctx<'_>) {
        let now = nanos(ctx.now());
        let is_over = |call: &SentCall| match &call.progress {
            Progress::Waiting(reply) => now >= call.deadline || reply.is_cancelled(),
            Progress::Streaming(body) => body.is_dropped(),
            Progress::GivenUp => false,
        };
        if self.calls.iter().any(is_over) {
            // Before the completions, whose callbacks may return the channel to its pool.
            self.is_draining = true;
            let is_last = |call: &SentCall| call.progress.is_given_up() || is_over(call);
            if self.calls.iter().all(is_last) {
                self.exchanges.end()
            } else {
                self.exchanges.drain()
            }
            for call in self.calls.iter_mut().filter(|call| is_over(call)) {
                call.give_up(timed_out(call.limit));
            }
        }
        self.close_if_drained(ctx);
    }

    /// Ends the use of the connection.
    fn drain(&mut self, ctx: &mut Ctx<'_>) {
        self.is_draining = true;
        self.exchanges.drain();
        self.close_if_drained(ctx);
    }

    /// Closes the connection if it must not be used again and no call waits on it.
    fn close_if_drained(&self, ctx: &mut Ctx<'_>) {
        if self.is_draining && self.calls.iter().all(|call| call.progress.is_given_up()) {
            self.exchanges.end();
            ctx.close_now();
        }
    }

    fn arm(&self, ctx: &mut Ctx<'_>) {
        let pending = self.calls.iter().filter(|call| matches!(call.progress, Progress::Waiting(_)));
        if let Some(deadline) = pending.map(|call| call.deadline).filter(|time| *time < u64::MAX).min() {
            let delay = deadline.saturating_sub(nanos(ctx.now())).max(1);
            ctx.wake_after(Duration::from_nanos(delay));
        }
    }

    // ---- responses ----

    /// Handles the head of a final response.
    fn head(&mut self, ctx: &mut Ctx<'_>, head: Response) -> Result<(), TooLong> {
        let Some(call) = self.calls.front_mut() else { return Ok(()) };
        match std::mem::replace(&mut call.progress, Progress::GivenUp) {
            Progress::Waiting(reply) if reply.is_streamed() => {
                call.progress = Progress::Streaming(reply.begin(head, ctx.id().event_loop, ctx.waker()));
            }
            Progress::Waiting(reply) => {
                call.progress = Progress::Waiting(reply);
                let length = head.announced_body().length().filter(|_| !head.is_head_only());
                self.collector.begin(head, true, length)?;
            }
            other => call.progress = other,
        }
        Ok(())
    }

    fn body(&mut self, ctx: &mut Ctx<'_>, bytes: Bytes) -> Result<(), TooLong> {
        match self.calls.front().map(|call| &call.progress) {
            Some(Progress::Streaming(body)) => {
                if body.push(bytes) {
                    ctx.pause_reading();
                }
                Ok(())
            }
            Some(Progress::Waiting(_)) => self.collector.add(bytes),
            _ => Ok(()),
        }
    }

    fn end(&mut self, ctx: &mut Ctx<'_>, trailers: Headers) {
        let Some(call) = self.calls.pop_front() else { return };
        if self.calls.is_empty() {
            self.upload = None;
        }
        match call.progress {
            Progress::Streaming(body) => body.end(Ok(trailers)),
            Progress::Waiting(reply) => {
                if let Some(message) = self.collector.end(trailers) {
                    reply.complete(message);
                }
            }
            Progress::GivenUp => {}
        }
        self.close_if_drained(ctx);
    }
}

impl Progress {
    fn is_given_up(&self) -> bool {
        matches!(self, Progress::GivenUp)
    }
}

impl SentCall {
    fn give_up(&mut self, error: Error) {
        match std::mem::replace(&mut self.progress, Progress::GivenUp) {
            Progress::Waiting(reply) => reply.fail(error),
            Progress::Streaming(body) => body.end(Err(error)),
            Progress::GivenUp => {}
        }
    }
}

fn timed_out(limit: Duration) -> Error {
    Error::timed_out("a call", limit)
}

impl Stage for Calls {
    type ReadIn = Part<Response>;
    type ReadOut = ();
    type WriteIn = Call;
    type WriteOut = Part<Request>;

    fn read(&mut self, ctx: &mut Ctx<'_>, part: Part<Response>) -> Result<Option<()>> {
        let read = match part {
            Part::Head(head) if head.status().is_informational() => Ok(()),
            Part::Head(head) => self.head(ctx, head),
            Part::Body(bytes) => self.body(ctx, bytes),
            Part::End(trailers) => {
                self.end(ctx, trailers);
                Ok(())
            }
        };
        read.map(|()| None).map_err(|TooLong| {
            ctx.close();
            HttpError::BodyTooLong.in_response()
        })
    }

    fn write(&mut self, ctx: &mut Ctx<'_>, call: Call) -> Result {
        match call.content {
            CallContent::Request(call) => self.begin(ctx, call),
            CallContent::Part(id, part) => self.upload(ctx, &id, part),
        }
        Ok(())
    }

    fn encoded_len_hint(call: &Call, _: impl Fn(&Part<Request>) -> Option<usize>) -> Option<usize> {
        Some(match &call.content {
            CallContent::Request(call) => match call.request.announced_body() {
                Body::Full(bytes) => 256 + bytes.len(),
                _ => 256,
            },
            CallContent::Part(_, Part::Body(bytes)) => bytes.len() + 12,
            CallContent::Part(..) => 8,
        })
    }

    fn timer(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.give_up(ctx);
        let waits = match self.calls.front().map(|call| &call.progress) {
            Some(Progress::Streaming(body)) => body.is_paused(),
            _ => false,
        };
        if ctx.is_paused() && !waits {
            ctx.resume_reading();
        }
        self.arm(ctx);
        Ok(())
    }

    fn error(&mut self, _: &mut Ctx<'_>, error: Error) -> Result {
        self.error.get_or_insert_with(|| error.clone());
        Err(error)
    }

    /// The calls end with the channel.
    fn shutdown(&mut self, ctx: &mut Ctx<'_>) -> Result {
        if ctx.shutdown_cause() == Some(ShutdownCause::LoopShutdown) {
            self.error.get_or_insert(Error::ShutDown);
        }
        Ok(())
    }

    fn inactive(&mut self, _: &mut Ctx<'_>) -> Result {
        let error = self.error.take().unwrap_or(Error::Closed);
        for mut call in self.calls.drain(..) {
            call.give_up(error.clone());
        }
        Ok(())
    }
}

/// The end of the pipeline, which receives nothing.
struct NoMessages;

impl Handler for NoMessages {
    type Read = ();
    type Write = Call;

    fn read(&mut self, _: &mut Context<'_, Self>, (): ()) -> Result {
        Ok(())
    }
}
