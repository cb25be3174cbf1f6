//! The stage of a server: one exchange at a time, keep-alive, times, and answers to errors.

mod answers;
mod response;
mod times;

use super::{
    exchange::{Exchange, Input, Output},
    framed_response::FramedResponse,
    http_server_settings::HttpServerSettings,
};
use crate::{
    channel::{CloseCause, ShutdownCause},
    clock::nanos,
    error::{Error, PeerError, Result},
    http::{
        Body, Part, Request, RequestId, Response, StatusCode, error::HttpError, stale_response::StaleResponse,
    },
    pipeline::{Stage, StageContext},
};
use std::sync::Arc;

pub(super) struct ServerStage {
    settings: Arc<HttpServerSettings>,
    phase: Phase,
    /// The number of the next request.
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

    /// Ends the connection of a client that has ended its stream. A response in progress is cut.
    fn end_behind_client(&mut self, ctx: &mut Ctx<'_>) {
        let is_cut = self.has_unfinished_output();
        self.end_because(ctx, if is_cut { CloseCause::Cut } else { CloseCause::Clean });
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

    fn begin(&mut self, ctx: &mut Ctx<'_>, request: &mut Request) {
        let id = RequestId::new(ctx.id(), ctx.next_request());
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
                // While the channel does not read, these may be whole requests that wait.
                if ctx.expects_input() {
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
            _ => self.end_behind_client(ctx),
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
        self.expire(ctx)
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
        if let Phase::Idle { .. } = self.phase
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
