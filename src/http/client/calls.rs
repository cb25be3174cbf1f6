//! The stage that pairs responses with calls.
//!
//! Invariants: a call completes once. A call that fails here leaves the others alone. When a call
//! that was written is given up, the connection takes no further call, and closes when no call
//! waits on it.

use super::{
    HttpClient,
    call::{Call, Reply},
    not_sent::NotSent,
};
use crate::{
    channel::{Exchanges, Pipeline},
    clock::nanos,
    error::{Error, Result},
    http::{Body, Message, Part, Request, Response, content::Aggregate, encode::unencodable},
    pipeline::{Context, Handler, Stage, StageContext},
};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// Returns the pipeline of [`HttpClient::calls`].
pub(super) fn pipeline(client: &HttpClient, max_body: usize) -> Pipeline<Call> {
    let exchanges = Arc::new(Exchanges::new());
    let calls =
        Calls { exchanges: exchanges.clone(), calls: VecDeque::new(), error: None, is_draining: false };
    client.pipeline_with(exchanges).stage(Aggregate::max_response(max_body)).stage(calls).handler(NoMessages)
}

/// Pairs responses with calls.
struct Calls {
    exchanges: Arc<Exchanges>,
    /// The calls whose responses have not arrived, oldest first.
    calls: VecDeque<SentCall>,
    /// The first error of the channel, for the calls that it fails.
    error: Option<Error>,
    /// Whether a call was given up, so that the connection must not be used again.
    is_draining: bool,
}

struct SentCall {
    /// `None` if the call was given up.
    reply: Option<Reply>,
    deadline: u64,
    limit: Duration,
}

type Ctx<'a> = StageContext<'a, Calls>;

impl Calls {
    /// Writes a call's request.
    fn send(&mut self, ctx: &mut Ctx<'_>, request: Request) -> Result {
        if self.is_draining {
            return Err(NotSent::error(Error::Closed));
        }
        if matches!(request.announced_body(), Body::Sized(_) | Body::Streamed) {
            return Err(unencodable("a call whose body is streamed"));
        }
        if request.method() == "CONNECT" || request.asks_for_upgrade() {
            return Err(unencodable("a call that asks for another protocol"));
        }
        ctx.write(request.into()).map_err(|error| match error {
            Error::Closed | Error::Full { .. } => NotSent::error(error),
            error => error,
        })
    }

    /// Gives up the calls that have timed out, and those whose callers have gone.
    fn give_up(&mut self, ctx: &mut Ctx<'_>) {
        let now = nanos(ctx.now());
        for call in &mut self.calls {
            let Some(reply) = &call.reply else { continue };
            let is_late = now >= call.deadline;
            if !is_late && !reply.is_cancelled() {
                continue;
            }
            // Before the completion, whose callback may return the channel to its pool.
            self.is_draining = true;
            self.exchanges.end();
            if let Some(reply) = call.reply.take() {
                reply.complete(Err(timed_out(call.limit)));
            }
        }
        self.close_if_drained(ctx);
    }

    /// Closes the connection if it must not be used again and no call waits on it.
    fn close_if_drained(&self, ctx: &mut Ctx<'_>) {
        if self.is_draining && self.calls.iter().all(|call| call.reply.is_none()) {
            ctx.close_now();
        }
    }

    fn arm(&self, ctx: &mut Ctx<'_>) {
        let pending = self.calls.iter().filter(|call| call.reply.is_some());
        if let Some(deadline) = pending.map(|call| call.deadline).filter(|time| *time < u64::MAX).min() {
            let delay = deadline.saturating_sub(nanos(ctx.now())).max(1);
            ctx.wake_after(Duration::from_nanos(delay));
        }
    }
}

fn timed_out(limit: Duration) -> Error {
    Error::timed_out("a call", limit)
}

impl Stage for Calls {
    type ReadIn = Message<Response>;
    type ReadOut = ();
    type WriteIn = Call;
    type WriteOut = Part<Request>;

    fn read(&mut self, ctx: &mut Ctx<'_>, response: Message<Response>) -> Result<Option<()>> {
        if let Some(SentCall { reply: Some(reply), .. }) = self.calls.pop_front() {
            reply.complete(Ok(response));
        }
        self.close_if_drained(ctx);
        Ok(None)
    }

    /// Writes a call. A failure is the call's, so it does not reach the channel's `error`.
    fn write(&mut self, ctx: &mut Ctx<'_>, call: Call) -> Result {
        let Call { request, mut reply, limit } = call;
        if reply.is_cancelled() {
            return Ok(());
        }
        if limit.is_zero() {
            reply.complete(Err(NotSent::error(timed_out(limit))));
            return Ok(());
        }
        if let Err(error) = self.send(ctx, request) {
            reply.complete(Err(error));
            return Ok(());
        }
        reply.sent(ctx.waker());
        let deadline = nanos(ctx.now()).saturating_add(nanos(limit));
        self.calls.push_back(SentCall { reply: Some(reply), deadline, limit });
        self.arm(ctx);
        Ok(())
    }

    fn timer(&mut self, ctx: &mut Ctx<'_>) -> Result {
        self.give_up(ctx);
        self.arm(ctx);
        Ok(())
    }

    fn error(&mut self, _: &mut Ctx<'_>, error: Error) -> Result {
        self.error.get_or_insert_with(|| error.clone());
        Err(error)
    }

    fn inactive(&mut self, _: &mut Ctx<'_>) -> Result {
        let error = self.error.take().unwrap_or(Error::Closed);
        for reply in self.calls.drain(..).filter_map(|call| call.reply) {
            reply.complete(Err(error.clone()));
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
