//! Calls through a pool: acquire, send, and repeat on another connection where that is safe.
//!
//! Invariants: a call owns the channel that it has acquired until it has a response, so no other
//! caller gets the channel before. Every call completes once. Its steps may run on any thread, and
//! none runs under the lock. The completions of the steps and the timer of a retry keep the call
//! alive, and each of them ends.

use super::{pooled::PooledChannel, request_settings::RequestSettings};
use crate::{
    bootstrap::reconnect::Retries,
    channel::ScheduledTask,
    clock::nanos,
    error::{Error, PeerError, Result},
    event_loop::EventLoop,
    http::{Call, CallAnswer, NotSent, Request},
    machine::Mutex,
    sync::{Completer, Completion, Unwanted, cancellable_of_all},
};
use std::{
    sync::{Arc, Weak},
    task::Wake,
    time::Duration,
};

/// How often an attempt is repeated at once because its connection had ended.
const REPEATS: u32 = 3;

pub(super) struct PooledCall<A: CallAnswer> {
    settings: RequestSettings,
    request: Request,
    /// The loop whose time is used.
    clock: EventLoop,
    /// The time of the loop at the start.
    started: u64,
    state: Mutex<State<A>>,
}

struct State<A: CallAnswer> {
    /// `None` after the end.
    reply: Option<Completer<A>>,
    step: Step<A>,
    /// Counts the steps, so that the timer of an earlier step can be recognised.
    step_number: u64,
    /// Limits the time of `step` until an attempt has a channel, or begins the next attempt.
    timer: Option<StepTimer>,
    /// The end of the current attempt, in the time of the loop.
    deadline: u64,
    repeats: u32,
    retries_left: u32,
    delays: Retries,
    dice: fastrand::Rng,
    /// Whether the request was sent, on any connection.
    was_sent: bool,
}

enum Step<A: CallAnswer> {
    None,
    Acquiring(Completion<PooledChannel<Call>>),
    /// Dropping it gives the call up before its channel returns to the pool.
    Responding(Completion<A>, PooledChannel<Call>),
}

/// A step that has ended, to be dropped without the lock.
struct Ended<A: CallAnswer> {
    step: Step<A>,
    timer: Option<StepTimer>,
}

/// The timer of a step. Dropping it cancels it.
struct StepTimer(ScheduledTask);

impl Drop for StepTimer {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl<A: CallAnswer> State<A> {
    fn replace_step(&mut self, step: Step<A>) -> Ended<A> {
        self.step_number += 1;
        Ended { step: std::mem::replace(&mut self.step, step), timer: self.timer.take() }
    }
}

impl<A: CallAnswer> Step<A> {
    fn is_done(&self) -> bool {
        match self {
            Step::None => false,
            Step::Acquiring(channel) => channel.is_done(),
            Step::Responding(response, _) => response.is_done(),
        }
    }
}

impl<A: CallAnswer> PooledCall<A> {
    pub(super) fn start(settings: RequestSettings, request: Request) -> Completion<A> {
        let group = settings.source.group();
        let clock = group.next_for_timers().clone();
        let (started, loops) = (clock.now(), group.loop_ids());
        let state = State {
            reply: None,
            step: Step::None,
            step_number: 0,
            timer: None,
            deadline: 0,
            repeats: 0,
            retries_left: settings.retries,
            delays: Retries::new(settings.backoff.clone()),
            dice: fastrand::Rng::with_seed(clock.shared.random.next()),
            was_sent: false,
        };
        let state = Mutex::new(state);
        let call = Arc::new(PooledCall { settings, request, clock, started, state });
        let weak = Arc::downgrade(&call);
        // Waiting on any of these loops could deadlock, as for `acquire`.
        let (reply, response) = cancellable_of_all(loops, move |unwanted| {
            if let (Unwanted::Operation, Some(call)) = (unwanted, weak.upgrade()) {
                drop(call.end());
            }
        });
        call.state.lock().reply = Some(reply);
        call.attempt();
        response
    }

    /// Begins an attempt.
    fn attempt(self: &Arc<Self>) {
        let now = self.clock.now();
        let end = self.started.saturating_add(nanos(self.settings.timeout));
        let attempt_end = now.saturating_add(nanos(self.settings.attempt_timeout));
        {
            let mut state = self.state.lock();
            state.repeats = 0;
            state.deadline = end.min(attempt_end);
        }
        self.acquire();
    }

    fn acquire(self: &Arc<Self>) {
        match self.settings.source.pool() {
            Ok(pool) => {
                let channel = pool.pool.acquire();
                channel.wake_when_done(self.clone().into());
                if let Some(number) = self.enter(Step::Acquiring(channel)) {
                    self.limit_acquiring(number);
                }
            }
            Err(error) => self.complete(Err(NotSent::error(error))),
        }
    }

    fn send(self: &Arc<Self>, channel: PooledChannel<Call>) {
        let left = self.attempt_left();
        if left.is_zero() {
            drop(channel);
            return self.retry(Err(NotSent::error(self.timed_out())));
        }
        let (call, response) = A::call(self.request.clone());
        if let Err(refused) = channel.write(call.timeout(left)) {
            let reason = refused.into_parts().1;
            return self.failed(channel, NotSent::error(reason));
        }
        response.wake_when_done(self.clone().into());
        self.enter(Step::Responding(response, channel));
    }

    /// Stores the next step, unless the call has ended, and returns its number. The step may have
    /// ended by then.
    fn enter(self: &Arc<Self>, step: Step<A>) -> Option<u64> {
        let mut state = self.state.lock();
        if state.reply.is_none() {
            drop(state);
            drop(step);
            return None;
        }
        let before = state.replace_step(step);
        let number = state.step_number;
        drop(state);
        drop(before);
        // The step may have been done before it was stored.
        self.advance();
        Some(number)
    }

    /// Continues if the current step is done.
    fn advance(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if !state.step.is_done() {
            return;
        }
        let Ended { step, timer } = state.replace_step(Step::None);
        drop(state);
        drop(timer);
        match step {
            Step::None => {}
            Step::Acquiring(channel) => match channel.take() {
                Some(Ok(channel)) => self.send(channel),
                Some(Err(error)) => self.retry(Err(NotSent::error(error))),
                None => {}
            },
            Step::Responding(response, channel) => match response.take() {
                Some(Ok(response)) => {
                    drop(channel);
                    self.state.lock().was_sent = true;
                    self.retry(Ok(response));
                }
                Some(Err(error)) => self.failed(channel, error),
                None => {}
            },
        }
    }

    /// Repeats the attempt at once if its connection had ended.
    fn failed(self: &Arc<Self>, channel: PooledChannel<Call>, error: Error) {
        let may_repeat = channel.is_reused() && self.may_repeat(&error);
        drop(channel);
        let repeats = {
            let mut state = self.state.lock();
            state.was_sent |= NotSent::of(&error).is_none();
            state.repeats += 1;
            state.repeats <= REPEATS
        };
        if may_repeat && repeats && !self.attempt_left().is_zero() {
            return self.acquire();
        }
        self.retry(Err(match error {
            // The channel's loop has measured the time that was left.
            Error::TimedOut { operation: "a call", .. } => self.timed_out(),
            error => error,
        }));
    }

    /// Returns whether the attempt can be repeated because its connection had ended.
    fn may_repeat(&self, error: &Error) -> bool {
        let is_safe = matches!(self.request.method(), "GET" | "HEAD" | "OPTIONS" | "TRACE");
        match NotSent::of(error) {
            Some(not_sent) => matches!(not_sent.cause(), Error::Closed),
            // Many servers end a TLS stream without its mark.
            None => {
                let is_end = matches!(error, Error::Closed | Error::Peer(PeerError::Truncated));
                is_safe && (is_end || matches!(error, Error::Io { .. }))
            }
        }
    }

    // ---- retries --------------------------------------------------------------------------------

    /// Schedules another attempt if this one has failed and may be retried. Ends the call with the
    /// result otherwise.
    fn retry(self: &Arc<Self>, result: Result<A>) {
        let delay = if self.is_retryable(&result) { self.next_delay() } else { None };
        let Some(delay) = delay.filter(|delay| *delay < self.left()) else { return self.complete(result) };
        // A response that is not wanted ends with its stream.
        drop(result);
        self.resume_after(delay);
    }

    fn resume_after(self: &Arc<Self>, delay: Duration) {
        let number = self.state.lock().step_number;
        let resume = Resume { call: Some(self.clone()), due: self.clock.now().saturating_add(nanos(delay)) };
        // A refused task was dropped, which schedules another one or ends the call.
        if let Ok(timer) = self.schedule(delay, move || resume.run()) {
            self.keep_timer(number, timer);
        }
    }

    /// Stores the timer of a step. Cancels it if the step has ended.
    fn keep_timer(&self, number: u64, timer: ScheduledTask) {
        let timer = StepTimer(timer);
        let mut state = self.state.lock();
        // Dropped without the lock, which a cancelled limit takes.
        let _unwanted = if state.step_number == number { state.timer.replace(timer) } else { Some(timer) };
        drop(state);
    }

    fn is_retryable(&self, result: &Result<A>) -> bool {
        let error = match result {
            Ok(response) => {
                return self.settings.is_idempotent && self.settings.statuses.contains(&response.status());
            }
            Err(error) => error,
        };
        let (cause, was_sent) = match NotSent::of(error) {
            Some(not_sent) => (not_sent.cause(), self.state.lock().was_sent),
            None => (error, true),
        };
        let is_temporary = match cause {
            Error::Closed | Error::Io { .. } | Error::TimedOut { .. } => true,
            Error::Peer(cause) => matches!(cause, PeerError::Truncated),
            _ => false,
        };
        is_temporary && (!was_sent || self.settings.is_idempotent) && !self.settings.source.is_closed()
    }

    /// Counts a retry. Returns its delay, or `None` if there is none left.
    fn next_delay(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        state.retries_left = state.retries_left.checked_sub(1)?;
        let State { delays, dice, .. } = &mut *state;
        delays.failed(dice)
    }

    // ---- the end --------------------------------------------------------------------------------

    fn complete(&self, result: Result<A>) {
        let was_sent = self.state.lock().was_sent;
        if let Some(reply) = self.end() {
            reply.complete(result.map_err(|error| match NotSent::of(&error) {
                // The last attempt was not sent, but the request may have arrived before.
                Some(not_sent) if was_sent => not_sent.cause().clone(),
                _ => error,
            }));
        }
    }

    /// Ends the call: gives up its current step. Returns the completer the first time.
    fn end(&self) -> Option<Completer<A>> {
        let mut state = self.state.lock();
        let reply = state.reply.take();
        let ended = state.replace_step(Step::None);
        drop(state);
        drop(ended);
        reply
    }

    // ---- time -----------------------------------------------------------------------------------

    /// Returns the time that is left for the call.
    fn left(&self) -> Duration {
        let spent = self.clock.now().saturating_sub(self.started);
        self.settings.timeout.saturating_sub(Duration::from_nanos(spent))
    }

    /// Returns the time that is left for the current attempt.
    fn attempt_left(&self) -> Duration {
        match self.state.lock().deadline {
            u64::MAX => Duration::MAX,
            deadline => Duration::from_nanos(deadline.saturating_sub(self.clock.now())),
        }
    }

    /// Returns the error of the limit that has expired.
    fn timed_out(&self) -> Error {
        let after = if self.left().is_zero() { self.settings.timeout } else { self.settings.attempt_timeout };
        Error::timed_out("a call", after.min(self.settings.timeout))
    }

    fn schedule(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> Result<ScheduledTask> {
        let event_loop = self.settings.source.group().next_for_timers();
        event_loop.schedule_for_reply(event_loop.after(delay), task)
    }

    /// Limits the time of a step that acquires a channel, unless the step has ended. The channel's
    /// loop watches the time from then on.
    ///
    /// A step has one limit at a time: the limit's drop sets another one for the same step.
    fn limit_acquiring(self: &Arc<Self>, number: u64) {
        let deadline = {
            let state = self.state.lock();
            if state.step_number != number || state.deadline == u64::MAX {
                return;
            }
            state.deadline
        };
        let left = Duration::from_nanos(deadline.saturating_sub(self.clock.now()));
        let limit = AcquireLimit { call: Arc::downgrade(self), number };
        // A refused limit has been dropped, which sets another one.
        if let Ok(timer) = self.schedule(left, move || limit.expire()) {
            self.keep_timer(number, timer);
        }
    }
}

/// The limit of the time until an attempt has a channel. A loop that ends drops it.
struct AcquireLimit<A: CallAnswer> {
    call: Weak<PooledCall<A>>,
    number: u64,
}

impl<A: CallAnswer> AcquireLimit<A> {
    fn expire(self) {
        let Some(call) = self.call.upgrade() else { return };
        let mut state = call.state.lock();
        if state.step_number != self.number {
            return;
        }
        let ended = state.replace_step(Step::None);
        drop(state);
        drop(ended);
        call.retry(Err(NotSent::error(call.timed_out())));
    }
}

impl<A: CallAnswer> Drop for AcquireLimit<A> {
    fn drop(&mut self) {
        let Some(call) = self.call.upgrade() else { return };
        // The step has ended if the limit has expired or was cancelled.
        let is_current = call.state.lock().step_number == self.number;
        // Without any loop, the pool fails the acquire.
        if is_current && !call.settings.source.group().next_for_timers().is_shutting_down() {
            call.limit_acquiring(self.number);
        }
    }
}

impl<A: CallAnswer> Wake for PooledCall<A> {
    fn wake(self: Arc<Self>) {
        self.advance();
    }
}

/// The next attempt of a call. A loop that ends drops it, which moves it to another loop.
struct Resume<A: CallAnswer> {
    /// `None` once it has run.
    call: Option<Arc<PooledCall<A>>>,
    /// When it runs, in the time of the call.
    due: u64,
}

impl<A: CallAnswer> Resume<A> {
    fn run(mut self) {
        let Some(call) = self.call.take() else { return };
        if call.state.lock().reply.is_some() {
            call.attempt();
        }
    }
}

impl<A: CallAnswer> Drop for Resume<A> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        // The call has ended if this was cancelled.
        if call.state.lock().reply.is_none() {
            return;
        }
        if call.settings.source.group().next_for_timers().is_shutting_down() {
            return call.complete(Err(NotSent::error(Error::ShutDown)));
        }
        call.resume_after(Duration::from_nanos(self.due.saturating_sub(call.clock.now())));
    }
}
