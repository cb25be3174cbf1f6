//! The stage of a server: one exchange at a time, keep-alive, times, and answers to errors.

use super::{
    date::http_date,
    exchange::{Exchange, Input, Output, Then},
    framed_response::FramedResponse,
};
use crate::{
    Error, Result,
    clock::nanos,
    http::{Body, HttpError, HttpSettings, Part, Request, Response, StatusCode},
    pipeline::{Stage, StageContext},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// The interval at which the stage looks whether the program has begun to read a body whose client
/// waits for `100 Continue`.
const CONTINUE_POLL: u64 = 100_000_000;

pub(super) struct ServerStage {
    settings: Arc<HttpSettings>,
    exchange: Exchange,
    /// Whether the handler has yet to receive the end of a request without a body.
    end_is_due: bool,
    /// The time for which the timer is set; `u64::MAX` if it is not.
    armed: u64,
    /// Whether the connection ends: later input is dropped.
    is_ended: bool,
    /// The start of the current state: idle, or the first byte of a head, or the current period of
    /// a body.
    since: u64,
    /// Whether the first bytes of a head have arrived.
    has_partial_head: bool,
    /// Bytes of the body that arrived in the current period, and that were discarded.
    arrived: u64,
    discarded: u64,
}

type Ctx<'a> = StageContext<'a, ServerStage>;

impl ServerStage {
    pub(super) fn new(settings: Arc<HttpSettings>) -> Self {
        ServerStage {
            settings,
            exchange: Exchange::IDLE,
            end_is_due: false,
            armed: u64::MAX,
            is_ended: false,
            since: 0,
            has_partial_head: false,
            arrived: 0,
            discarded: 0,
        }
    }

    fn is_idle(&self) -> bool {
        self.exchange.output == Output::Idle
    }

    /// Begins to wait for the next request.
    fn become_idle(&mut self, ctx: &mut Ctx<'_>) {
        self.exchange = Exchange::IDLE;
        self.end_is_due = false;
        self.has_partial_head = false;
        self.since = nanos(ctx.now());
        if ctx.is_paused() {
            ctx.resume_reads();
        }
        self.arm(ctx);
    }

    /// Ends the connection after the pending bytes.
    fn end(&mut self, ctx: &mut Ctx<'_>) {
        self.is_ended = true;
        self.exchange.output = Output::Complete;
        self.end_is_due = false;
        ctx.close();
    }

    /// Called when the response is complete.
    fn finish(&mut self, ctx: &mut Ctx<'_>) {
        if !self.exchange.keep_alive {
            self.end(ctx);
        } else if self.exchange.input == Input::Complete {
            self.become_idle(ctx);
        } else {
            self.discarded = 0;
        }
    }

    /// Answers an error of the client, unless a response has begun, and ends the connection.
    fn answer(&mut self, ctx: &mut Ctx<'_>, error: HttpError) {
        let may_answer = matches!(self.exchange.output, Output::Idle | Output::Awaited);
        if may_answer && !self.is_ended {
            // Without a request, the answer is framed for HTTP/1.1.
            self.exchange.output = Output::Awaited;
            self.exchange.keep_alive = false;
            let response = Response::from(error.status()).close();
            let date = http_date(ctx.wall_time());
            if let Ok((Some(framed), _)) = self.exchange.frame(response.into(), || date) {
                // A full buffer, or a closed channel: there is nobody to tell.
                let _ = ctx.write(framed);
            }
        }
        self.end(ctx);
    }

    // ---- times ----

    /// Sets the timer for the next limit of the current state, unless it expires before that
    /// anyway.
    fn arm(&mut self, ctx: &mut Ctx<'_>) {
        let Some(deadline) = self.deadline(ctx).filter(|deadline| *deadline < self.armed) else { return };
        self.armed = deadline;
        let delay = deadline.saturating_sub(nanos(ctx.now())).max(1);
        ctx.wake_after(Duration::from_nanos(delay));
    }

    /// Returns the time of the next limit.
    fn deadline(&self, ctx: &Ctx<'_>) -> Option<u64> {
        let after =
            |since: u64, limit: Duration| (!limit.is_zero()).then(|| since.saturating_add(nanos(limit)));
        let settings = &self.settings;
        if self.is_ended {
            return None;
        }
        if self.is_idle() {
            return after(
                self.since,
                if self.has_partial_head { settings.head_time } else { settings.keep_alive },
            );
        }
        let body = match self.exchange.input {
            Input::Body if self.exchange.expects_continue => {
                Some(nanos(ctx.now()).saturating_add(CONTINUE_POLL))
            }
            Input::Body => after(self.since, settings.body_time),
            Input::Complete => None,
        };
        let comment = match self.exchange.is_event_stream && self.exchange.is_responding() {
            true => after(nanos(ctx.last_written()), settings.event_comment),
            false => None,
        };
        body.into_iter().chain(comment).min()
    }

    fn idle_timer(&mut self, ctx: &mut Ctx<'_>, now: u64) {
        let limit = if self.has_partial_head { self.settings.head_time } else { self.settings.keep_alive };
        if limit.is_zero() || now < self.since.saturating_add(nanos(limit)) {
            return;
        }
        if self.has_partial_head {
            self.answer(ctx, HttpError::HeadTimeout);
        } else {
            self.end(ctx);
        }
    }

    /// Checks the speed of a body.
    fn body_timer(&mut self, ctx: &mut Ctx<'_>, now: u64) -> Result {
        let limit = self.settings.body_time;
        if self.exchange.expects_continue {
            self.maybe_continue(ctx)?;
            self.since = now;
            return Ok(());
        }
        if limit.is_zero() || now < self.since.saturating_add(nanos(limit)) {
            return Ok(());
        }
        // A program that does not read is not the client's fault.
        if self.arrived < self.settings.body_bytes && ctx.expects_input() {
            let was_awaited = !self.exchange.has_response();
            self.answer(ctx, HttpError::BodyTimeout);
            return if was_awaited { Err(HttpError::BodyTimeout.into()) } else { Ok(()) };
        }
        self.since = now;
        self.arrived = 0;
        Ok(())
    }

    /// Sends a comment in a quiet stream of events.
    fn event_timer(&mut self, ctx: &mut Ctx<'_>, now: u64) -> Result {
        let limit = nanos(self.settings.event_comment);
        let is_quiet = limit > 0 && now >= nanos(ctx.last_written()).saturating_add(limit);
        if !is_quiet || ctx.pending_bytes() > 0 {
            return Ok(());
        }
        let comment = Bytes::from_static(b":\n\n");
        match self.exchange.output {
            Output::Chunked => ctx.write(FramedResponse::Chunk(comment)),
            Output::UntilClose => ctx.write(FramedResponse::Data(comment)),
            _ => Ok(()),
        }
    }

    /// Sends `100 Continue` if the client waits for it and the handler wants the body.
    fn maybe_continue(&mut self, ctx: &mut Ctx<'_>) -> Result {
        let is_wanted = self.exchange.expects_continue && self.exchange.output == Output::Awaited;
        if is_wanted && ctx.expects_input() {
            ctx.write(FramedResponse::Continue)?;
            self.exchange.expects_continue = false;
        }
        Ok(())
    }

    /// Sends `100 Continue` ahead of a response whose body is streamed: the handler may need the
    /// request's body for it, as an echo does. A client that has the status no longer waits for
    /// `100 Continue`, but need not send the body.
    #[cold]
    fn continue_before(&mut self, ctx: &mut Ctx<'_>, response: &Response) -> Result {
        if response.status() == StatusCode::CONTINUE {
            self.exchange.expects_continue = false;
        } else if !response.status().is_informational() && response.announced_body().is_streamed() {
            self.maybe_continue(ctx)?;
        }
        Ok(())
    }
}

impl Stage for ServerStage {
    type ReadIn = Part<Request>;
    type ReadOut = Part<Request>;
    type WriteIn = Part<Response>;
    type WriteOut = FramedResponse;

    fn active(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.become_idle(ctx);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Ctx<'_>, part: Part<Request>) -> Result<Option<Part<Request>>> {
        if self.is_ended {
            return Ok(None);
        }
        match &part {
            Part::Head(request) => {
                self.exchange = Exchange::begin(request);
                self.end_is_due = self.exchange.input == Input::Complete;
                self.has_partial_head = false;
                if !self.end_is_due {
                    self.since = nanos(ctx.now());
                    self.arrived = 0;
                    self.discarded = 0;
                    // Decided before the handler responds, so that the response can say it.
                    let length = request.announced_body().length();
                    self.exchange.discards_rest = length.is_none_or(|length| length <= self.settings.discard);
                }
            }
            Part::Body(bytes) => {
                self.exchange.expects_continue = false;
                self.arrived = self.arrived.saturating_add(bytes.len() as u64);
                if self.exchange.has_response() {
                    self.discarded = self.discarded.saturating_add(bytes.len() as u64);
                    if self.discarded > self.settings.discard {
                        self.end(ctx);
                    }
                    return Ok(None);
                }
            }
            Part::End(_) => {
                // The client may not have waited, and the body may be empty.
                self.exchange.expects_continue = false;
                self.exchange.input = Input::Complete;
                if self.exchange.has_response() {
                    self.become_idle(ctx);
                    return Ok(None);
                }
                ctx.pause_reads();
            }
        }
        Ok(Some(part))
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.end_is_due
    }

    fn read_more(&mut self, ctx: &mut Ctx<'_>) -> Result<Option<Part<Request>>> {
        self.end_is_due = false;
        ctx.pause_reads();
        Ok(Some(Part::end()))
    }

    fn write(&mut self, ctx: &mut Ctx<'_>, part: Part<Response>) -> Result {
        if let Part::Head(response) = &part
            && self.exchange.expects_continue
        {
            self.continue_before(ctx, response)?;
        }
        let (framed, change) = match self.exchange.frame(part, || http_date(ctx.wall_time())) {
            Ok(framed) => framed,
            Err(error) => {
                if self.exchange.is_responding() {
                    // The client would take the next response for a part of this one.
                    self.end(ctx);
                }
                return Err(error);
            }
        };
        if let Some(framed) = framed {
            ctx.write(framed)?;
        }
        self.exchange.apply(&change);
        match change.then {
            Then::Continue => {
                if self.exchange.is_event_stream {
                    self.arm(ctx);
                }
            }
            Then::Finish => self.finish(ctx),
            Then::Upgrade => {
                self.end_is_due = false;
                ctx.pause_reads();
            }
        }
        Ok(())
    }

    fn encoded_len_hint(
        part: &Part<Response>,
        _: impl Fn(&FramedResponse) -> Option<usize>,
    ) -> Option<usize> {
        match part {
            Part::Head(response) => match response.announced_body() {
                Body::Full(bytes) => Some(256 + bytes.len()),
                _ => Some(256),
            },
            Part::Body(bytes) => Some(bytes.len() + 12),
            Part::End(_) => Some(8),
        }
    }

    fn read_complete(&mut self, ctx: &mut Ctx<'_>) -> Result {
        if self.is_idle() {
            if !self.has_partial_head && ctx.undecoded_bytes() > 0 && !self.is_ended {
                self.has_partial_head = true;
                self.since = nanos(ctx.now());
                self.arm(ctx);
            }
            return Ok(());
        }
        if self.exchange.input == Input::Body && !self.is_ended {
            self.maybe_continue(ctx)?;
            self.arm(ctx);
        }
        Ok(())
    }

    fn read_closed(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.exchange.keep_alive = false;
        if self.is_idle() || self.exchange.has_response() || self.exchange.input == Input::Body {
            // Nothing to respond to, or an incomplete request.
            self.end(ctx);
        }
        Ok(())
    }

    /// Ends the connection after the response in progress.
    fn shutdown(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.exchange.keep_alive = false;
        if self.is_idle() {
            self.end(ctx);
        }
        Ok(())
    }

    fn timer(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.armed = u64::MAX;
        let now = nanos(ctx.now());
        let result = if self.is_ended {
            Ok(())
        } else if self.is_idle() {
            self.idle_timer(ctx, now);
            Ok(())
        } else if self.exchange.input == Input::Body {
            self.body_timer(ctx, now)
        } else {
            Ok(())
        };
        let comment = if self.exchange.is_event_stream { self.event_timer(ctx, now) } else { Ok(()) };
        self.arm(ctx);
        result.and(comment)
    }

    fn error(&mut self, ctx: &mut Ctx<'_>, error: Error) -> Result {
        let Some(cause) = HttpError::of(&error).filter(|_| !self.is_ended) else { return Err(error) };
        // The handler knows of the request if its head was complete.
        let is_known = !self.is_idle() && !self.exchange.has_response();
        self.answer(ctx, cause);
        if is_known {
            return Err(error);
        }
        log::debug!("channel {}: {cause}", ctx.id());
        Ok(())
    }
}
