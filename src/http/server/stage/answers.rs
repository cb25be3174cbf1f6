//! Responses that the stage writes itself: to errors, and to requests that an overloaded loop
//! refuses.

use super::{
    super::exchange::{Exchange, Output, Then},
    Ctx, Phase, ServerStage,
};
use crate::{
    admission::Work,
    http::{Request, StatusCode, error::HttpError},
};
use std::time::Duration;

impl ServerStage {
    /// Answers an error of the client, unless a response has begun, and ends the connection.
    pub(super) fn answer(&mut self, ctx: &mut Ctx<'_>, error: HttpError) {
        self.answer_with(ctx, error.status());
    }

    pub(super) fn answer_with(&mut self, ctx: &mut Ctx<'_>, status: StatusCode) {
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

    /// Refuses a request if the loop is overloaded. Returns whether it was refused.
    pub(super) fn shed(&mut self, ctx: &mut Ctx<'_>, request: &Request) -> bool {
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
            if framed.is_some_and(|framed| ctx.write_kept(framed).is_err()) {
                continue;
            }
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
}
