//! Whether a channel is between two exchanges with its peer.
//!
//! A stage of a protocol with requests and responses reports when an exchange begins and ends. A
//! pool reads it before it hands the channel to another user.
//!
//! Invariants: a message that a handle has queued counts as an exchange until the loop has handled
//! it. So a channel is never idle while a request is on its way to the loop. A channel that drains
//! is never idle again, and neither is one that has ended. The callback runs at most once, without
//! the lock. Any thread may use this.

use crate::machine::Mutex;
use std::fmt;

/// Whether a channel is between two exchanges with its peer.
pub(crate) struct Exchanges(Mutex<State>);

struct State {
    /// The number of messages of handles that the loop has not handled.
    queued: usize,
    phase: Phase,
    when_idle: Option<WhenIdle>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Busy,
    /// The channel ends with the exchanges in progress.
    Draining,
    Over,
}

type WhenIdle = Box<dyn FnOnce() + Send>;

/// What a pool can do with a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The channel can be handed to another user.
    Now,
    /// An exchange is in progress.
    Later,
    /// The channel takes no further exchange.
    Never,
}

#[cfg_attr(not(any(feature = "http", test)), expect(dead_code, reason = "for HTTP clients"))]
impl Exchanges {
    pub(crate) fn new() -> Self {
        Exchanges(Mutex::new(State { queued: 0, phase: Phase::Idle, when_idle: None }))
    }

    // ---- messages of handles ----

    /// Counts a message that a handle is about to queue.
    pub(in crate::channel) fn queue(&self) {
        self.0.lock().queued += 1;
    }

    /// Records that the loop has handled a queued message, or that its queue has refused it.
    pub(in crate::channel) fn take(&self) {
        self.change(|state| state.queued -= 1);
    }

    // ---- the stage ----

    /// Records that an exchange has begun.
    pub(crate) fn begin(&self) {
        self.enter(Phase::Busy);
    }

    /// Records that no exchange is in progress.
    pub(crate) fn finish(&self) {
        self.enter(Phase::Idle);
    }

    /// Records that the exchanges in progress are the last ones.
    pub(crate) fn drain(&self) {
        self.enter(Phase::Draining);
    }

    /// Records that the channel takes no further exchange.
    pub(crate) fn end(&self) {
        self.enter(Phase::Over);
    }

    fn enter(&self, phase: Phase) {
        self.change(|state| {
            state.phase = match (state.phase, phase) {
                (Phase::Over, _) | (Phase::Draining, Phase::Idle) => Phase::Over,
                (Phase::Draining, Phase::Busy) => Phase::Draining,
                _ => phase,
            };
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        change(&mut state);
        let reuse = state.reuse();
        let callback = if reuse == Reuse::Later { None } else { state.when_idle.take() };
        drop(state);
        match callback {
            Some(callback) if reuse == Reuse::Now => callback(),
            unused => drop(unused),
        }
    }

    // ---- the pool ----

    pub(crate) fn reuse(&self) -> Reuse {
        self.0.lock().reuse()
    }

    /// Calls `callback` when the channel is idle, at once if it is. Drops it if the channel never
    /// is again. Replaces an earlier callback.
    pub(crate) fn when_idle(&self, callback: impl FnOnce() + Send + 'static) {
        let earlier = self.0.lock().when_idle.replace(Box::new(callback));
        drop(earlier);
        self.change(|_| ());
    }
}

impl State {
    fn reuse(&self) -> Reuse {
        match self.phase {
            Phase::Over => Reuse::Never,
            Phase::Idle if self.queued == 0 => Reuse::Now,
            Phase::Idle | Phase::Busy | Phase::Draining => Reuse::Later,
        }
    }
}

impl fmt::Debug for Exchanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exchanges").field(&self.reuse()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    #[test]
    fn a_queued_message_counts_as_an_exchange_until_the_loop_has_handled_it() {
        let exchanges = Exchanges::new();
        assert_eq!(exchanges.reuse(), Reuse::Now);
        exchanges.queue();
        assert_eq!(exchanges.reuse(), Reuse::Later);
        exchanges.begin();
        exchanges.take();
        assert_eq!(exchanges.reuse(), Reuse::Later, "its response has not arrived");
        exchanges.finish();
        assert_eq!(exchanges.reuse(), Reuse::Now);
    }

    #[test]
    fn the_callback_runs_once_when_the_channel_is_idle() {
        let exchanges = Exchanges::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = || {
            let calls = calls.clone();
            move || {
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        exchanges.begin();
        exchanges.when_idle(count());
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        exchanges.finish();
        exchanges.begin();
        exchanges.finish();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        exchanges.when_idle(count());
        assert_eq!(calls.load(Ordering::Relaxed), 2, "idle already");
    }

    #[test]
    fn a_channel_that_takes_no_further_exchange_is_never_idle() {
        let exchanges = Exchanges::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        exchanges.begin();
        exchanges.when_idle(move || {
            seen.fetch_add(1, Ordering::Relaxed);
        });
        exchanges.end();
        exchanges.finish();
        assert_eq!((exchanges.reuse(), calls.load(Ordering::Relaxed)), (Reuse::Never, 0));
        assert_eq!(Arc::strong_count(&calls), 1, "the callback is dropped");
    }

    #[test]
    fn a_channel_that_drains_ends_with_its_last_exchange() {
        let exchanges = Exchanges::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        exchanges.begin();
        exchanges.drain();
        exchanges.when_idle(move || {
            seen.fetch_add(1, Ordering::Relaxed);
        });
        exchanges.begin();
        assert_eq!(exchanges.reuse(), Reuse::Later, "an exchange is in progress");
        exchanges.finish();
        assert_eq!((exchanges.reuse(), calls.load(Ordering::Relaxed)), (Reuse::Never, 0));
        assert_eq!(Arc::strong_count(&calls), 1, "the callback is dropped");
    }
}
