//! Calls through a pool: acquire, send, and repeat on another connection where that is safe.
//!
//! Invariants: a call owns the channel that it has acquired until it has a response, so nobody else
//! gets the channel before. Every call completes once. Its steps may run on any thread, and none
//! runs under the lock. The completions of the steps keep the call alive, and each of them ends.

use super::{ChannelPool, pooled::PooledChannel, service::PoolService};
use crate::{
    channel::ScheduledTask,
    clock::nanos,
    error::{Error, Result},
    http::{Call, Message, NotSent, Request, Response},
    sync::{Completer, Completion, Unwanted, cancellable_of_all},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Wake,
    time::Duration,
};

/// How often a call is repeated because its connection had ended.
const REPEATS: u32 = 3;

impl ChannelPool<Call> {
    /// Makes a call on a connection of the pool, within [`Call::TIME_LIMIT`].
    ///
    /// See [`call_within`](ChannelPool::call_within).
    ///
    /// ```
    /// # use netwheel::{http::{HttpClient, HttpServer, Part, Request, Response}, prelude::*};
    /// # fn main() -> Result {
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// # let http = HttpServer::new();
    /// # let server = ServerBootstrap::new(&group)
    /// #     .pipeline(move |_peer| http.pipeline().on_read(|ctx, part| match part {
    /// #         Part::Head(_) => ctx.write(Response::ok("hello").into()),
    /// #         _ => Ok(()),
    /// #     }))
    /// #     .bind("127.0.0.1:0")?;
    /// # let address = server.local_address();
    /// let http = HttpClient::new().host("example.org");
    /// let pool = ClientBootstrap::new(&group)
    ///     .pipeline(move |_peer| http.calls(64 * 1024))
    ///     .pool()
    ///     .build(address)?;
    /// assert_eq!(pool.call(Request::get("/")).wait()?.body, "hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn call(&self, request: Request) -> Completion<Message<Response>> {
        self.call_within(request, Call::TIME_LIMIT)
    }

    /// Makes a call on a connection of the pool, within `limit`.
    ///
    /// The limit is for everything: waiting for a connection, opening one, sending, and the whole
    /// response. `Duration::MAX` turns it off.
    ///
    /// The connection returns to the pool after the response. Dropping the pending completion, or
    /// the time limit, discards it instead.
    ///
    /// If a connection that was used before turns out to be closed, the call is repeated on another
    /// one, at most 3 times: when no byte of it was sent, or when its method is safe (GET, HEAD,
    /// OPTIONS or TRACE).
    ///
    /// # Errors
    /// Those of a [`Call`]. Errors before the request is sent are a [`NotSent`], with an error of
    /// [`acquire`](ChannelPool::acquire) or [`Error::TimedOut`] as their cause. If the request of a
    /// repeated call was sent before, the call fails with that cause itself.
    pub fn call_within(&self, request: Request, limit: Duration) -> Completion<Message<Response>> {
        let started = self.service.timers.now();
        let (service, state) = (self.service.clone(), Mutex::default());
        let call = Arc::new(PooledCall { service, request, limit, started, state });
        let weak = Arc::downgrade(&call);
        // Waiting on any of these loops could deadlock, as for `acquire`.
        let (reply, response) = cancellable_of_all(self.service.group.loop_ids(), move |unwanted| {
            if let (Unwanted::Operation, Some(call)) = (unwanted, weak.upgrade()) {
                drop(call.end());
            }
        });
        call.lock().reply = Some(reply);
        call.acquire();
        call.limit_acquiring();
        response
    }
}

struct PooledCall {
    service: Arc<PoolService<Call>>,
    request: Request,
    limit: Duration,
    /// The time of the pool's loop at the start.
    started: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` after the end.
    reply: Option<Completer<Message<Response>>>,
    step: Step,
    /// Limits the time until the call has a channel.
    timer: Option<ScheduledTask>,
    repeats: u32,
    /// Whether the request was sent, on any connection.
    was_sent: bool,
}

#[derive(Default)]
enum Step {
    #[default]
    None,
    Acquiring(Completion<PooledChannel<Call>>),
    /// Dropping it gives the call up before its channel returns to the pool.
    Responding(Completion<Message<Response>>, PooledChannel<Call>),
}

impl Step {
    fn is_done(&self) -> bool {
        match self {
            Step::None => false,
            Step::Acquiring(channel) => channel.is_done(),
            Step::Responding(response, _) => response.is_done(),
        }
    }
}

impl PooledCall {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acquire(self: &Arc<Self>) {
        let channel = self.service.acquire();
        channel.wake_when_done(self.clone().into());
        self.enter(Step::Acquiring(channel));
    }

    fn send(self: &Arc<Self>, channel: PooledChannel<Call>) {
        if let Some(timer) = self.lock().timer.take() {
            timer.cancel();
        }
        let left = self.left();
        if left.is_zero() {
            drop(channel);
            return self.complete(Err(NotSent::error(Error::timed_out("a call", self.limit))));
        }
        let (call, response) = Call::new(self.request.clone());
        if let Err(refused) = channel.write(call.within(left)) {
            let reason = refused.into_parts().1;
            return self.failed(channel, NotSent::error(reason));
        }
        response.wake_when_done(self.clone().into());
        self.enter(Step::Responding(response, channel));
    }

    /// Stores the next step, unless the call has ended.
    fn enter(self: &Arc<Self>, step: Step) {
        let mut state = self.lock();
        if state.reply.is_none() {
            drop(state);
            return drop(step);
        }
        state.step = step;
        drop(state);
        // The step may have been done before it was stored.
        self.advance();
    }

    /// Continues if the current step is done.
    fn advance(self: &Arc<Self>) {
        let mut state = self.lock();
        if !state.step.is_done() {
            return;
        }
        let step = std::mem::take(&mut state.step);
        drop(state);
        match step {
            Step::None => {}
            Step::Acquiring(channel) => match channel.take() {
                Some(Ok(channel)) => self.send(channel),
                Some(Err(error)) => self.complete(Err(NotSent::error(error))),
                None => {}
            },
            Step::Responding(response, channel) => match response.take() {
                Some(Ok(response)) => {
                    drop(channel);
                    self.complete(Ok(response));
                }
                Some(Err(error)) => self.failed(channel, error),
                None => {}
            },
        }
    }

    /// Repeats the call, or fails it.
    fn failed(self: &Arc<Self>, channel: PooledChannel<Call>, error: Error) {
        let may_repeat = channel.is_reused() && self.may_repeat(&error);
        drop(channel);
        let repeats = {
            let mut state = self.lock();
            state.was_sent |= NotSent::of(&error).is_none();
            state.repeats += 1;
            state.repeats <= REPEATS
        };
        if may_repeat && repeats && !self.left().is_zero() {
            self.acquire();
            return self.limit_acquiring();
        }
        let after = self.limit;
        self.complete(Err(match error {
            // The channel's loop has measured the time that was left.
            Error::TimedOut { operation: operation @ "a call", .. } => Error::TimedOut { operation, after },
            error => error,
        }));
    }

    /// Returns whether the call can be repeated because its connection had ended.
    fn may_repeat(&self, error: &Error) -> bool {
        let is_safe = matches!(self.request.method(), "GET" | "HEAD" | "OPTIONS" | "TRACE");
        match NotSent::of(error) {
            Some(not_sent) => matches!(not_sent.cause(), Error::Closed),
            None => is_safe && matches!(error, Error::Closed | Error::Io { .. }),
        }
    }

    fn complete(&self, result: Result<Message<Response>>) {
        let was_sent = self.lock().was_sent;
        if let Some(reply) = self.end() {
            reply.complete(result.map_err(|error| match NotSent::of(&error) {
                // The last repetition was not sent, but the request may have arrived before.
                Some(not_sent) if was_sent => not_sent.cause().clone(),
                _ => error,
            }));
        }
    }

    /// Ends the call: gives up its current step. Returns the completer the first time.
    fn end(&self) -> Option<Completer<Message<Response>>> {
        let mut state = self.lock();
        let (reply, step, timer) = (state.reply.take(), std::mem::take(&mut state.step), state.timer.take());
        drop(state);
        if let Some(timer) = timer {
            timer.cancel();
        }
        drop(step);
        reply
    }

    // ---- time -----------------------------------------------------------------------------------

    /// Returns the time that is left.
    fn left(&self) -> Duration {
        let spent = self.service.timers.now().saturating_sub(self.started);
        self.limit.saturating_sub(Duration::from_nanos(spent))
    }

    /// Limits the time until the call has a channel. Its loop watches the time from then on.
    fn limit_acquiring(self: &Arc<Self>) {
        if self.limit == Duration::MAX || !self.is_acquiring() {
            return;
        }
        let weak: Weak<Self> = Arc::downgrade(self);
        let deadline = self.started.saturating_add(nanos(self.limit));
        let timer = self.service.timers.schedule_for_reply(deadline, move || {
            if let Some(call) = weak.upgrade().filter(|call| call.is_acquiring()) {
                let error = Error::timed_out("a call", call.limit);
                call.complete(Err(NotSent::error(error)));
            }
        });
        // Without its loop, the pool fails the acquire.
        let Ok(timer) = timer else { return };
        let mut state = self.lock();
        if matches!(state.step, Step::Acquiring(_)) {
            state.timer = Some(timer);
        } else {
            drop(state);
            timer.cancel();
        }
    }

    fn is_acquiring(&self) -> bool {
        matches!(self.lock().step, Step::Acquiring(_))
    }
}

impl Wake for PooledCall {
    fn wake(self: Arc<Self>) {
        self.advance();
    }
}
