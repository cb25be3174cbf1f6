//! The state machine of a reconnecting client.
//!
//! Invariants: the client is in exactly one phase, which has one operation in progress (a timer, an
//! attempt or a channel), so nothing is left when it ends. However the operation ends, the client
//! is notified and continues or ends, also if a loop that shuts down drops the operation. The
//! client ends once, and drops the closures of the program then. No lock is held while code of the
//! program runs. Everything runs on the client's loop, except for `stop`, which any thread may
//! call.

use super::{
    Hook, ReconnectEvent, RetryIf,
    backoff::{Backoff, Retries},
};
use crate::{
    bootstrap::dial::Dialer,
    channel::{Channel, ChannelShared, ScheduledTask},
    error::{Error, caught, drop_guarded},
    event_loop::{Attempt, ConnectCallback, EventLoop},
    log_throttle::{PANICS, log_throttled, off_loop},
    machine::{Mutex, MutexGuard},
    sync::{Completer, Waiters},
};
use log::Level;
use std::{sync::Arc, time::Duration};

/// A reconnecting client, in any phase.
pub(super) struct ReconnectState<M> {
    pub(super) event_loop: EventLoop,
    state: Mutex<ConnectionProgress<M>>,
}

/// The closures of the program, by which the client connects and reports.
pub(super) struct ReconnectCalls<M> {
    pub(super) dialer: Arc<Dialer>,
    pub(super) hook: Option<Hook<M>>,
    pub(super) retry_if: Option<RetryIf>,
}

pub(super) struct ConnectionProgress<M> {
    pub(super) phase: ReconnectPhase<M>,
    /// `None` once the client has ended, because they may own a handle of the client.
    pub(super) calls: Option<Arc<ReconnectCalls<M>>>,
    retries: Retries,
    dice: fastrand::Rng,
    /// The number of the current or last attempt.
    attempt: u32,
    /// Completers that wait for a connection.
    pub(super) awaited: Waiters<Completer<Channel<M>>>,
    /// Completers that wait for the end of the client.
    pub(super) ends: Waiters,
}

pub(super) enum ReconnectPhase<M> {
    /// Between two other phases, on the loop.
    Between,
    /// Waiting for the time of the next attempt.
    Waiting(ScheduledTask),
    Connecting(Attempt),
    /// The channel, and the time of the loop when it connected.
    Connected(Channel<M>, u64),
    /// Stopped. The current operation has not ended yet.
    Stopping,
    /// Ended, by a stop or with this error.
    Ended(Option<Error>),
}

impl<M> ReconnectState<M> {
    pub(super) fn new(event_loop: EventLoop, backoff: Backoff, calls: ReconnectCalls<M>) -> Self {
        let state = ConnectionProgress {
            phase: ReconnectPhase::Between,
            calls: Some(Arc::new(calls)),
            retries: Retries::new(backoff),
            dice: fastrand::Rng::with_seed(event_loop.shared.random.next()),
            attempt: 0,
            awaited: Waiters::default(),
            ends: Waiters::default(),
        };
        ReconnectState { event_loop, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ConnectionProgress<M>> {
        // A panic elsewhere does not spoil the state, which is consistent at every moment.
        self.state.lock()
    }

    fn calls(&self) -> Option<Arc<ReconnectCalls<M>>> {
        self.lock().calls.clone()
    }

    /// Calls the hook and returns whether the client continues.
    fn notify(&self, event: ReconnectEvent<'_, M>) -> bool {
        let calls = self.calls();
        let hook = calls.as_ref().and_then(|calls| calls.hook.as_ref());
        hook.is_none_or(|hook| ask("hook", || hook(event).is_continue()))
    }

    /// Returns whether another attempt may succeed after this error.
    fn is_retryable(&self, error: &Error) -> bool {
        let calls = self.calls();
        let retry_if = calls.as_ref().and_then(|calls| calls.retry_if.as_ref());
        retry_if.is_none_or(|retry_if| ask("`retry_if`", || retry_if(error)))
    }
}

/// Calls a function of the program. Returns `true` if it panics.
fn ask(function: &str, call: impl FnOnce() -> bool) -> bool {
    let mut answer = true;
    if let Some(message) = caught(|| answer = call()) {
        log_throttled!(
            off_loop(),
            PANICS,
            Level::Error,
            "the {function} of a reconnecting client panicked: {message}"
        );
    }
    answer
}

/// Returns how long the server asks to wait, if it has refused a WebSocket handshake for a while.
fn hint_of(error: &Error) -> Duration {
    #[cfg(feature = "websocket")]
    if let Some(refusal) = crate::websocket::HandshakeError::of(error) {
        return refusal.retry_after().unwrap_or_default();
    }
    let _ = error;
    Duration::ZERO
}

impl<M: 'static> ReconnectState<M> {
    /// Starts the next attempt, on the loop.
    pub(super) fn try_to_connect(self: Arc<Self>) {
        let number = {
            let mut state = self.lock();
            if matches!(state.phase, ReconnectPhase::Stopping) {
                drop(state);
                return self.end(None);
            }
            state.phase = ReconnectPhase::Between;
            state.attempt = state.retries.begin();
            state.attempt
        };
        let Some(calls) = self.calls() else { return };
        // The name may not have been looked up yet.
        if let Some(address) = calls.dialer.first_address()
            && !self.notify(ReconnectEvent::Connecting { attempt: number, address: &address })
        {
            self.stop();
        }
        let attempt = Attempt::new();
        {
            let mut state = self.lock();
            if matches!(state.phase, ReconnectPhase::Stopping) {
                drop(state);
                return self.end(None);
            }
            state.phase = ReconnectPhase::Connecting(attempt.clone());
        }
        calls.dialer.dial(attempt, Box::new(Attempting::new(self.clone())));
    }

    /// Handles the success of an attempt, on the loop.
    fn connected(self: Arc<Self>, channel: Channel<M>) {
        let held = Attempting::new(self.clone());
        channel.closed().on_complete(move |_| held.take(ReconnectState::lost));
        let (attempt, awaited) = {
            let mut state = self.lock();
            if matches!(state.phase, ReconnectPhase::Stopping) {
                drop(state);
                return channel.close_now();
            }
            state.phase = ReconnectPhase::Connected(channel.clone(), self.event_loop.shared.time.now());
            (state.attempt, state.awaited.take())
        };
        let continues = self.notify(ReconnectEvent::Connected { attempt, channel: &channel });
        for completer in awaited {
            completer.complete(Ok(channel.clone()));
        }
        if !continues {
            self.stop();
        }
    }

    /// Handles the failure of an attempt, on the loop.
    fn failed(self: Arc<Self>, error: Error) {
        let is_retryable = self.is_retryable(&error);
        let (attempt, next) = {
            let mut state = self.lock();
            if matches!(state.phase, ReconnectPhase::Stopping) {
                drop(state);
                return self.end(None);
            }
            state.phase = ReconnectPhase::Between;
            let ConnectionProgress { retries, dice, attempt, .. } = &mut *state;
            let ends = !is_retryable || self.event_loop.is_shutting_down();
            (*attempt, if ends { None } else { retries.failed_with_hint(hint_of(&error), dice) })
        };
        let continues = self.notify(ReconnectEvent::Failed { attempt, error: &error, next });
        self.proceed(continues, next, error);
    }

    /// Handles the close of the channel, on the loop.
    fn lost(self: Arc<Self>) {
        let (held, next) = {
            let mut state = self.lock();
            if !matches!(state.phase, ReconnectPhase::Connected(..)) {
                drop(state);
                return self.end(None);
            }
            let connected = std::mem::replace(&mut state.phase, ReconnectPhase::Between);
            let ReconnectPhase::Connected(channel, since) = connected else { return };
            let held = Duration::from_nanos(self.event_loop.shared.time.now().saturating_sub(since));
            let ConnectionProgress { retries, dice, calls, .. } = &mut *state;
            if !retries.is_stable(held)
                && let Some(calls) = calls
            {
                calls.dialer.avoid(channel.peer_address());
            }
            let hint = channel.reconnect_hint();
            let next = if self.event_loop.is_shutting_down() { None } else { retries.lost(held, hint, dice) };
            (held, next)
        };
        let continues = self.notify(ReconnectEvent::Lost { held, next });
        self.proceed(continues, next, Error::Closed);
    }

    /// Schedules the next attempt after a failure, or ends with `why`.
    fn proceed(self: Arc<Self>, continues: bool, next: Option<Duration>, why: Error) {
        if !continues {
            self.stop();
        }
        let Some(delay) = next else {
            let why = if self.event_loop.is_shutting_down() { Error::ShutDown } else { why };
            return self.end(Some(why));
        };
        // Without the lock, because a refused task is dropped here, which ends the client.
        let pending = Attempting::new(self.clone());
        match self.event_loop.schedule_always(delay, move || pending.take(ReconnectState::try_to_connect)) {
            Ok(task) => {
                let mut state = self.lock();
                if matches!(state.phase, ReconnectPhase::Between) {
                    state.phase = ReconnectPhase::Waiting(task);
                } else {
                    // Stopped since. Cancelling drops the task, which ends the client.
                    drop(state);
                    task.cancel();
                }
            }
            Err(e) => self.end(Some(e)),
        }
    }

    pub(super) fn stop(&self) {
        let before = {
            let mut state = self.lock();
            if matches!(state.phase, ReconnectPhase::Stopping | ReconnectPhase::Ended(_)) {
                return;
            }
            std::mem::replace(&mut state.phase, ReconnectPhase::Stopping)
        };
        match before {
            // This drops the timer's closure, which ends the client.
            ReconnectPhase::Waiting(task) => drop(task.cancel()),
            ReconnectPhase::Connecting(attempt) => attempt.cancel(&self.event_loop.shared),
            ReconnectPhase::Connected(channel, _) => channel.close(),
            ReconnectPhase::Between | ReconnectPhase::Stopping | ReconnectPhase::Ended(_) => {}
        }
    }

    /// Ends the client: stopped, or with an error. The first call determines the result.
    fn end(&self, why: Option<Error>) {
        let (awaited, ends, calls) = {
            let mut state = self.lock();
            let why = match &state.phase {
                ReconnectPhase::Ended(_) => return,
                ReconnectPhase::Stopping => None,
                _ => why,
            };
            state.phase = ReconnectPhase::Ended(why);
            (state.awaited.take(), state.ends.take(), state.calls.take())
        };
        let why = || match &self.lock().phase {
            ReconnectPhase::Ended(why) => why.clone(),
            _ => None,
        };
        for completer in awaited {
            completer.complete(Err(why().unwrap_or(Error::Cancelled)));
        }
        for completer in ends {
            completer.complete(why().map_or(Ok(()), Err));
        }
        drop_guarded(calls);
    }
}

/// An operation in progress: the start, a timer, an attempt or a channel. A loop that ends drops
/// its pending operations, which ends the client.
pub(super) struct Attempting<M: 'static>(Option<Arc<ReconnectState<M>>>);

impl<M: 'static> Attempting<M> {
    pub(super) fn new(client: Arc<ReconnectState<M>>) -> Self {
        Attempting(Some(client))
    }

    pub(super) fn take(mut self, f: impl FnOnce(Arc<ReconnectState<M>>)) {
        if let Some(client) = self.0.take() {
            f(client);
        }
    }
}

impl<M: 'static> ConnectCallback for Attempting<M> {
    fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|client| matches!(client.lock().phase, ReconnectPhase::Connecting(_)))
    }

    fn connected(self: Box<Self>, channel: Arc<ChannelShared>) {
        self.take(|client| client.connected(Channel::new(channel)));
    }

    fn failed(self: Box<Self>, error: Error) {
        match self.0.as_ref().map(|client| client.event_loop.clone()) {
            // A lookup has failed on its thread. A refused task is dropped, which ends the client.
            Some(event_loop) if !event_loop.in_event_loop() => {
                let failed = move || self.take(|client| client.failed(error));
                drop(event_loop.schedule_always(Duration::ZERO, failed));
            }
            _ => self.take(|client| client.failed(error)),
        }
    }
}

impl<M: 'static> Drop for Attempting<M> {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            client.end(Some(Error::ShutDown));
        }
    }
}
