//! The stage of a server: one exchange at a time, keep-alive, times, and answers to errors.

use super::{
    exchange::{Exchange, ExchangeChange, Input, Output, Then},
    framed_response::FramedResponse,
    http_server_settings::HttpServerSettings,
};
use crate::{
    admission::Work,
    channel::{CloseCause, ShutdownCause},
    clock::nanos,
    error::{Error, PeerError, Result},
    http::{
        Body, Part, Request, RequestId, Response, StatusCode, encode::unencodable, error::HttpError,
        stale_response::StaleResponse,
    },
    pipeline::{Stage, StageContext},
};
use bytes::Bytes;
use std::{num::NonZeroU32, sync::Arc, time::Duration};

/// The interval at which the stage looks whether the program has begun to read a body whose client
/// waits for `100 Continue`.
const CONTINUE_POLL: u64 = 100_000_000;

pub(super) struct ServerStage {
    settings: Arc<HttpServerSettings>,
    phase: Phase,
    /// The number of the next request.
    next_request: NonZeroU32,
    /// The time for which the timer is set; `u64::MAX` if it is not.
    armed: u64,
    /// Whether parts of a body are dropped, because the last response of this connection was that
    /// to HEAD for a stream of events.
    drops_parts: bool,
    /// Whether the next response is the last one, because the connection has reached its maximum
    /// age.
    is_aged: bool,
}

/// What the connection is doing.
enum Phase {
    /// No request has arrived yet, or the last exchange is over.
    Idle {
        /// The start of this phase, or the time of the first byte of a head.
        since: u64,
        /// Whether the first bytes of a head have arrived.
        has_partial_head: bool,
    },
    /// A request has arrived, and its exchange is not over.
    Busy(Exchange),
    /// The connection ends: later input is dropped.
    Ended {
        /// Whether the last response lacks its end.
        unfinished: bool,
    },
}

type Ctx<'a> = StageContext<'a, ServerStage>;

impl ServerStage {
    pub(super) fn new(settings: Arc<HttpServerSettings>) -> Self {
        ServerStage {
            settings,
            phase: Phase::Idle { since: 0, has_partial_head: false },
            next_request: NonZeroU32::MIN,
            armed: u64::MAX,
            drops_parts: false,
            is_aged: false,
        }
    }

    fn exchange(&mut self) -> Option<&mut Exchange> {
        match &mut self.phase {
            Phase::Busy(exchange) => Some(exchange),
            Phase::Idle { .. } | Phase::Ended { .. } => None,
        }
    }

    /// Begins to wait for the next request, which is not read while the client does not take the
    /// responses.
    fn become_idle(&mut self, ctx: &mut Ctx<'_>) {
        let since = nanos(ctx.now());
        self.phase = Phase::Idle { since, has_partial_head: false };
        Self::read_if(ctx, ctx.was_writable());
        if !self.settings.keep_alive_timeout.is_zero() {
            self.arm_at(ctx, since.saturating_add(nanos(self.settings.keep_alive_timeout)));
        }
    }

    /// Begins or ends the pause of an idle connection. It follows the notified state, so that a
    /// notification ends each pause.
    fn read_if(ctx: &mut Ctx<'_>, writable: bool) {
        if !writable {
            // Without looking for the end of the stream: requests that precede it are answered.
            ctx.pause_reading();
        } else if ctx.is_paused() {
            ctx.resume_reading();
        }
    }

    /// Ends the connection after the pending bytes.
    fn end(&mut self, ctx: &mut Ctx<'_>) {
        self.end_because(ctx, CloseCause::Clean);
    }

    fn end_because(&mut self, ctx: &mut Ctx<'_>, cause: CloseCause) {
        self.phase = Phase::Ended { unfinished: self.has_unfinished_output() };
        ctx.close_because(cause);
    }

    /// Called when the response is complete.
    fn finish(&mut self, ctx: &mut Ctx<'_>) {
        let drops_parts = self.drops_parts;
        match self.exchange() {
            // The running callback may write events, which a closed channel would refuse.
            Some(_) if drops_parts => self.arm(ctx),
            Some(exchange) if !exchange.keep_alive => self.end(ctx),
            // The rest of the request is discarded.
            Some(exchange) if exchange.input == Input::Body => {}
            Some(_) => self.become_idle(ctx),
            None => {}
        }
    }

    /// Answers an error of the client, unless a response has begun, and ends the connection.
    fn answer(&mut self, ctx: &mut Ctx<'_>, error: HttpError) {
        self.answer_with(ctx, error.status());
    }

    fn answer_with(&mut self, ctx: &mut Ctx<'_>, status: StatusCode) {
        if let Phase::Idle { .. } = self.phase {
            self.phase = Phase::Busy(Exchange::unreadable());
        }
        let settings = self.settings.clone();
        if let Some(exchange) = self.exchange()
            && exchange.output == Output::Awaited
        {
            exchange.keep_alive = false;
            let now = ctx.wall_time();
            for page in settings.error_pages(status) {
                // With a full buffer or a closed channel, no page can be sent.
                if let Ok((Some(framed), _)) = exchange.frame(page.into(), || now)
                    && ctx.write(framed).is_ok()
                {
                    break;
                }
            }
        }
        self.end(ctx);
    }

    // ---- overload ----

    /// Refuses a request if the loop is overloaded. Returns whether it was refused.
    fn shed(&mut self, ctx: &mut Ctx<'_>, request: &Request) -> bool {
        if !ctx.sheds_work() || !self.settings.is_deferrable(request) {
            return false;
        }
        let Err(refused) = ctx.admit(Work::Login) else { return false };
        self.refuse(ctx, refused.retry_after());
        true
    }

    /// Answers with 503. The connection stays open: a new one would cost the loop more.
    #[cold]
    fn refuse(&mut self, ctx: &mut Ctx<'_>, retry_after: Duration) {
        let settings = self.settings.clone();
        let now = ctx.wall_time();
        let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
        for page in settings.pages(StatusCode::SERVICE_UNAVAILABLE) {
            let page = page.header("Retry-After", seconds.to_string());
            let Some(exchange) = self.exchange() else { return };
            let Ok((framed, change)) = exchange.frame(page.into(), || now) else { continue };
            if framed.is_some_and(|framed| ctx.write(framed).is_err()) {
                continue;
            }
            ctx.keep_written();
            if let Some(exchange) = self.exchange() {
                exchange.apply(&change);
            }
            if change.then == Then::Finish {
                self.finish(ctx);
            }
            return;
        }
        self.end(ctx);
    }

    // ---- the request ----

    fn begin(&mut self, ctx: &mut Ctx<'_>, request: &mut Request) {
        let id = RequestId::new(ctx.id(), self.next_request);
        self.next_request = self.next_request.checked_add(1).unwrap_or(NonZeroU32::MIN);
        request.identify(id);
        let mut exchange = Exchange::begin(id, request, self.settings.max_discarded, nanos(ctx.now()));
        exchange.keep_alive &= !self.is_aged;
        self.phase = Phase::Busy(exchange);
    }

    /// Handles a part of a body. Returns whether the handler receives it.
    fn read_body(&mut self, ctx: &mut Ctx<'_>, length: u64) -> bool {
        let limit = self.settings.max_discarded;
        let Some(exchange) = self.exchange() else { return false };
        exchange.expects_continue = false;
        exchange.arrived = exchange.arrived.saturating_add(length);
        if !exchange.has_response() {
            return true;
        }
        exchange.discarded = exchange.discarded.saturating_add(length);
        if exchange.discarded > limit {
            self.end(ctx);
        }
        false
    }

    /// Handles the end of a request. Returns whether the handler receives it.
    fn read_end(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let Some(exchange) = self.exchange() else { return false };
        // The client may not have waited, and the body may be empty.
        exchange.expects_continue = false;
        exchange.input = Input::Complete;
        if exchange.has_response() {
            // A shutdown may have begun since the response.
            if exchange.keep_alive {
                self.become_idle(ctx)
            } else {
                self.end(ctx)
            }
            return false;
        }
        // The next request waits undecoded. A client that goes away is still detected.
        ctx.pause_reading_until_gone();
        true
    }

    // ---- the response ----

    /// Frames a part of the response. Returns no change if the part is dropped.
    ///
    /// # Errors
    /// [`Error::Encode`] if the part does not fit the parts before it, the request, or any request.
    #[inline]
    fn frame(
        &mut self,
        ctx: &mut Ctx<'_>,
        part: Part<Response>,
    ) -> Result<Option<(Option<FramedResponse>, ExchangeChange)>> {
        let drops_parts = self.drops_parts;
        let exchange = self.exchange();
        match part {
            Part::Head(response) => {
                if let Some(id) = response.request()
                    && !exchange.as_ref().is_some_and(|exchange| exchange.awaits(id))
                {
                    return Err(Error::other(StaleResponse::new(id, response)));
                }
                let Some(exchange) = exchange else {
                    return Err(unencodable("a response without a request"));
                };
                exchange.frame(Part::Head(response), || ctx.wall_time()).map(Some)
            }
            _ if drops_parts => Ok(None),
            part => match exchange {
                Some(exchange) => exchange.frame(part, || ctx.wall_time()).map(Some),
                None => Err(unencodable("a part of a response that has not begun")),
            },
        }
    }

    // ---- times ----

    /// Sets the timer for the next limit of the current state, unless it already expires before
    /// that.
    fn arm(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(deadline) = self.deadline(ctx) {
            self.arm_at(ctx, deadline);
        }
    }

    #[inline]
    fn arm_at(&mut self, ctx: &mut Ctx<'_>, deadline: u64) {
        if deadline >= self.armed {
            return;
        }
        self.armed = deadline;
        let delay = deadline.saturating_sub(nanos(ctx.now())).max(1);
        ctx.wake_after(Duration::from_nanos(delay));
    }

    /// Returns the time of the next limit.
    fn deadline(&self, ctx: &Ctx<'_>) -> Option<u64> {
        let after =
            |since: u64, limit: Duration| (!limit.is_zero()).then(|| since.saturating_add(nanos(limit)));
        let settings = &self.settings;
        let exchange = match &self.phase {
            Phase::Ended { .. } => return None,
            Phase::Busy(_) if self.drops_parts => return Some(nanos(ctx.now())),
            Phase::Idle { since, has_partial_head: true } => return after(*since, settings.head_timeout),
            // A client that still takes the last response is not idle.
            Phase::Idle { since, .. } => {
                return after((*since).max(nanos(ctx.last_written())), settings.keep_alive_timeout);
            }
            Phase::Busy(exchange) => exchange,
        };
        let body = match exchange.input {
            Input::Body if exchange.expects_continue => Some(nanos(ctx.now()).saturating_add(CONTINUE_POLL)),
            Input::Body => after(exchange.since, settings.body_timeout),
            Input::EndDue | Input::Complete => None,
        };
        let comment = match exchange.is_event_stream && exchange.is_responding() {
            true => after(nanos(ctx.last_written()), settings.event_comment_interval),
            false => None,
        };
        body.into_iter().chain(comment).min()
    }

    /// Checks the speed of a body.
    fn body_timer(&mut self, ctx: &mut Ctx<'_>, now: u64) -> Result {
        let (limit, least) = (self.settings.body_timeout, self.settings.min_body_progress);
        let Some(exchange) = self.exchange().filter(|exchange| exchange.input == Input::Body) else {
            return Ok(());
        };
        if exchange.expects_continue {
            exchange.since = now;
            return self.maybe_continue(ctx);
        }
        if limit.is_zero() || now < exchange.since.saturating_add(nanos(limit)) {
            return Ok(());
        }
        // A program that does not read is not the client's fault, and neither is a traffic limit.
        if exchange.arrived < least && ctx.expects_input() && !ctx.reading_was_held_up() {
            let was_awaited = !exchange.has_response();
            if exchange.lacks_output() {
                self.end_because(ctx, CloseCause::TimedOut);
            } else {
                self.answer(ctx, HttpError::BodyTimeout);
            }
            return if was_awaited { Err(HttpError::BodyTimeout.into()) } else { Ok(()) };
        }
        exchange.since = now;
        exchange.arrived = 0;
        Ok(())
    }

    /// Sends a comment in a quiet stream of events.
    fn event_timer(&mut self, ctx: &mut Ctx<'_>, now: u64) -> Result {
        let limit = nanos(self.settings.event_comment_interval);
        let is_quiet = limit > 0 && now >= nanos(ctx.last_written()).saturating_add(limit);
        let Some(exchange) = self.exchange().filter(|exchange| exchange.is_event_stream) else {
            return Ok(());
        };
        if !is_quiet || ctx.pending_bytes() > 0 {
            return Ok(());
        }
        let comment = Bytes::from_static(b":\n\n");
        match exchange.output {
            Output::Chunked => ctx.write(FramedResponse::Chunk(comment)),
            Output::UntilClose => ctx.write(FramedResponse::Data(comment)),
            _ => Ok(()),
        }
    }

    /// Sends `100 Continue` if the client waits for it and the handler wants the body.
    fn maybe_continue(&mut self, ctx: &mut Ctx<'_>) -> Result {
        let Some(exchange) = self.exchange() else { return Ok(()) };
        if exchange.expects_continue && exchange.output == Output::Awaited && ctx.expects_input() {
            ctx.write(FramedResponse::Continue)?;
            exchange.expects_continue = false;
        }
        Ok(())
    }

    /// Sends `100 Continue` ahead of a response whose body is streamed: the handler may need the
    /// request's body for it, as an echo does. A client that has the status no longer waits for
    /// `100 Continue`, but need not send the body.
    #[cold]
    fn continue_before(&mut self, ctx: &mut Ctx<'_>, response: &Response) -> Result {
        if response.status() == StatusCode::CONTINUE {
            if let Some(exchange) = self.exchange() {
                exchange.expects_continue = false;
            }
            Ok(())
        } else if !response.status().is_informational() && response.announced_body().is_streamed() {
            self.maybe_continue(ctx)
        } else {
            Ok(())
        }
    }

    /// Writes the head of a response to a client that waits for `100 Continue`.
    #[cold]
    fn write_to_waiting(&mut self, ctx: &mut Ctx<'_>, head: Part<Response>) -> Result {
        if let Part::Head(response) = &head {
            self.continue_before(ctx, response)?;
        }
        let written = self.write_part(ctx, head);
        if written.is_err()
            && let Some(exchange) = self.exchange()
        {
            // `100 Continue` is taken back together with the response.
            exchange.expects_continue = true;
        }
        written
    }

    /// Writes a part of the response. The change of the exchange follows the write, which is the
    /// last step that can fail.
    #[inline(always)]
    fn write_part(&mut self, ctx: &mut Ctx<'_>, part: Part<Response>) -> Result {
        let (framed, change) = match self.frame(ctx, part) {
            Ok(Some(framed)) => framed,
            Ok(None) => return Ok(()),
            Err(error) => {
                let is_cut = self.exchange().is_some_and(|exchange| exchange.is_responding());
                if is_cut && StaleResponse::of(&error).is_none() {
                    // The client would take the next response for a part of this one.
                    self.end_because(ctx, CloseCause::Failed);
                }
                return Err(error);
            }
        };
        if let Some(framed) = framed {
            let is_event = matches!(framed, FramedResponse::Chunk(_) | FramedResponse::Data(_))
                && self.exchange().is_some_and(|exchange| exchange.is_event_stream);
            ctx.write(framed)?;
            if !is_event {
                ctx.keep_written();
            }
        }
        if let Some(exchange) = self.exchange() {
            exchange.apply(&change);
        }
        self.drops_parts |= change.drops_parts;
        match change.then {
            Then::Continue => {
                if self.exchange().is_some_and(|exchange| exchange.is_event_stream) {
                    self.arm(ctx);
                }
            }
            Then::Finish => self.finish(ctx),
            Then::Upgrade => {
                if let Some(exchange) = self.exchange() {
                    exchange.input = Input::Complete;
                }
                // The bytes behind the request, and the end of the stream, are the next pipeline's.
                ctx.pause_reading();
            }
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

    fn read(&mut self, ctx: &mut Ctx<'_>, mut part: Part<Request>) -> Result<Option<Part<Request>>> {
        if matches!(self.phase, Phase::Ended { .. }) {
            return Ok(None);
        }
        let is_delivered = match &mut part {
            Part::Head(request) => {
                self.begin(ctx, request);
                !self.shed(ctx, request)
            }
            Part::Body(bytes) => self.read_body(ctx, bytes.len() as u64),
            Part::End(_) => self.read_end(ctx),
        };
        Ok(is_delivered.then_some(part))
    }

    #[inline]
    fn has_more(&self) -> bool {
        matches!(&self.phase, Phase::Busy(Exchange { input: Input::EndDue, .. }))
    }

    fn read_more(&mut self, ctx: &mut Ctx<'_>) -> Result<Option<Part<Request>>> {
        Ok(self.read_end(ctx).then(Part::end))
    }

    fn write(&mut self, ctx: &mut Ctx<'_>, part: Part<Response>) -> Result {
        if let Part::Head(response) = &part
            && self.exchange().is_some_and(|exchange| exchange.expects_continue)
            && response.request().is_none_or(|id| self.exchange().is_some_and(|exchange| exchange.awaits(id)))
        {
            return self.write_to_waiting(ctx, part);
        }
        self.write_part(ctx, part)
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
        match &mut self.phase {
            Phase::Idle { since, has_partial_head: partial @ false } if ctx.undecoded_bytes() > 0 => {
                // While reading is paused, these are whole requests that wait.
                if !ctx.is_paused() {
                    (*since, *partial) = (nanos(ctx.now()), true);
                    self.arm(ctx);
                }
                Ok(())
            }
            Phase::Idle { since, has_partial_head: partial @ true } if ctx.undecoded_bytes() == 0 => {
                // The bytes were an empty line, which may precede a request.
                (*since, *partial) = (nanos(ctx.now()), false);
                self.arm(ctx);
                Ok(())
            }
            Phase::Busy(exchange) if exchange.input == Input::Body => {
                self.maybe_continue(ctx)?;
                self.arm(ctx);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn writability_changed(&mut self, ctx: &mut Ctx<'_>, writable: bool) -> Result {
        if matches!(self.phase, Phase::Idle { .. }) {
            Self::read_if(ctx, writable);
        }
        Ok(())
    }

    fn read_closed(&mut self, ctx: &mut Ctx<'_>) -> Result {
        match self.exchange() {
            Some(exchange) if !exchange.has_response() && exchange.input != Input::Body => {
                exchange.keep_alive = false;
            }
            // Nothing to respond to, or an incomplete request.
            _ => self.end(ctx),
        }
        Ok(())
    }

    /// Ends the connection after the response in progress. A connection that has reached its
    /// maximum age ends behind the next response that can say so. The client may have sent a
    /// request already that would be lost otherwise. The grace time bounds the wait.
    ///
    /// The default `shutdown` of the handler does not cut a body that looks complete then.
    fn shutdown(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.is_aged = ctx.shutdown_cause() == Some(ShutdownCause::MaxAge);
        if self.is_aged || self.exchange().is_some_and(|exchange| exchange.looks_complete_if_cut()) {
            ctx.end_later();
        }
        match &mut self.phase {
            Phase::Idle { .. } if self.is_aged => {}
            Phase::Idle { .. } => self.end(ctx),
            Phase::Busy(exchange) if self.is_aged && exchange.output != Output::Awaited => {}
            Phase::Busy(exchange) => exchange.keep_alive = false,
            Phase::Ended { .. } => {}
        }
        Ok(())
    }

    fn timer(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.armed = u64::MAX;
        let now = nanos(ctx.now());
        let result = match self.phase {
            Phase::Idle { has_partial_head, .. } => {
                if self.deadline(ctx).is_some_and(|deadline| deadline <= now) {
                    match has_partial_head {
                        true if ctx.reading_was_held_up() => {
                            self.phase = Phase::Idle { since: now, has_partial_head };
                        }
                        true => self.answer(ctx, HttpError::HeadTimeout),
                        false => self.end(ctx),
                    }
                }
                Ok(())
            }
            Phase::Busy(_) if self.drops_parts => {
                self.end(ctx);
                Ok(())
            }
            Phase::Busy(_) => self.body_timer(ctx, now),
            Phase::Ended { .. } => Ok(()),
        };
        let comment = self.event_timer(ctx, now);
        self.arm(ctx);
        result.and(comment)
    }

    fn has_unfinished_output(&self) -> bool {
        match &self.phase {
            Phase::Busy(exchange) => exchange.lacks_output(),
            Phase::Ended { unfinished } => *unfinished,
            Phase::Idle { .. } => false,
        }
    }

    /// Answers a request to which the handler has failed to respond.
    fn failed(&mut self, ctx: &mut Ctx<'_>) -> Result {
        if self.exchange().is_some_and(|exchange| exchange.output == Output::Awaited) {
            self.answer_with(ctx, StatusCode::INTERNAL_SERVER_ERROR);
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Ctx<'_>, error: Error) -> Result {
        if let Some(stale) = StaleResponse::of(&error) {
            // A task that was too late.
            log::debug!("channel {}: {stale}", ctx.id());
            return Ok(());
        }
        if let Phase::Idle { has_partial_head: false, .. } = self.phase
            && let Error::Peer(PeerError::Truncated) = error
        {
            // Many clients end a TLS stream without its mark.
            log::debug!("channel {}: {error:#}", ctx.id());
            self.end(ctx);
            return Ok(());
        }
        let is_ended = matches!(self.phase, Phase::Ended { .. });
        // A handler may fail with the error of a backend, for which the client is not responsible.
        let Some(cause) = HttpError::of_client(&error).filter(|_| !is_ended) else { return Err(error) };
        // The handler knows of the request if its head was complete.
        let is_known = self.exchange().is_some_and(|exchange| !exchange.has_response());
        self.answer(ctx, cause);
        if is_known {
            return Err(error);
        }
        log::debug!("channel {}: {cause}", ctx.id());
        Ok(())
    }
}
