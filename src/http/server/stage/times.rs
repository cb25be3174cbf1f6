//! The time limits of a connection, and the comments in a stream of events.

use super::{
    super::{
        exchange::{Input, Output},
        framed_response::FramedResponse,
    },
    Ctx, Phase, ServerStage,
};
use crate::{channel::CloseCause, clock::nanos, error::Result, http::error::HttpError};
use bytes::Bytes;
use std::time::Duration;

/// The interval at which the stage looks whether the program has begun to read a body whose client
/// waits for `100 Continue`.
const CONTINUE_POLL: u64 = 100_000_000;

impl ServerStage {
    /// Sets the timer for the next limit of the current state, unless it already expires before
    /// that.
    pub(super) fn arm(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(deadline) = self.deadline(ctx) {
            self.arm_at(ctx, deadline);
        }
    }

    #[inline]
    pub(super) fn arm_at(&mut self, ctx: &mut Ctx<'_>, deadline: u64) {
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
            // No comment is sent behind bytes that wait.
            true if ctx.pending_bytes() > 0 => after(nanos(ctx.now()), settings.event_comment_interval),
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

    /// Handles the expiry of the timer.
    pub(super) fn expire(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.armed = u64::MAX;
        let now = nanos(ctx.now());
        let result = match self.phase {
            Phase::Idle { has_partial_head, .. } => {
                if self.deadline(ctx).is_some_and(|deadline| deadline <= now) {
                    // The pause of this stage is for a client that does not take the responses.
                    let program_pauses = !ctx.expects_input() && !ctx.is_paused();
                    if program_pauses || has_partial_head && ctx.reading_was_held_up() {
                        self.phase = Phase::Idle { since: now, has_partial_head };
                    } else if has_partial_head {
                        self.answer(ctx, HttpError::HeadTimeout);
                    } else {
                        self.end(ctx);
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
}
