//! What completes later: one value, made on one side, awaited on the other.
//!
//! Always holds: exactly one result is delivered, to exactly one of the three ways of asking (wait, callback,
//! `Future`); a producer that is dropped without a word completes with [`Error::Cancelled`], and so does a cancel, of
//! what can be cancelled: then the producer hears of it, and its own result is dropped. A callback runs on
//! the thread that completes, where a panic in it is logged and goes no further, or at once on the calling thread
//! if the result is there already; no lock is held meanwhile. Waiting on the loop that has to complete it, or on
//! one of them if they are several, is an error; so is waiting on the thread that drives such a loop by hand.

use super::{
    loop_id,
    primitives::{Condvar, Mutex, MutexGuard},
};
use crate::{Error, Result, error::panic_message};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// The consumer's side of something that completes later.
///
/// ```no_run
/// # use netwheel::prelude::*;
/// # fn f(group: &EventLoopGroup) -> Result {
/// let completion = group.shutdown_gracefully(Default::default(), std::time::Duration::from_secs(5));
/// completion.wait()?; // or .on_complete(|result| ..), or .await
/// # Ok(())
/// # }
/// ```
#[must_use = "it says whether the operation succeeded; call `detach` not to know"]
pub struct Completion<T = ()> {
    inner: Arc<Inner<T>>,
}

/// The producer's side.
pub(crate) struct Completer<T = ()> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    /// The loops without which it is not completed; usually one.
    event_loops: Loops,
    /// Tells the producer that the result is not wanted; none if it cannot be stopped.
    cancel: Option<Cancel>,
    state: Mutex<State<T>>,
    done: Condvar,
}

enum State<T> {
    Pending { waker: Option<Waker>, callback: Option<Callback<T>> },
    Done(Result<T>),
    Taken,
}

enum Loops {
    One(Option<u32>),
    All(Box<[u32]>),
}

type Callback<T> = Box<dyn FnOnce(Result<T>) + Send>;
type Cancel = Box<dyn Fn() + Send + Sync>;

/// A pair of both sides; `event_loop` is the loop on which it will be completed.
pub(crate) fn completion<T>(event_loop: Option<u32>) -> (Completer<T>, Completion<T>) {
    pair(Loops::One(event_loop), None)
}

/// As [`completion`], of what can be cancelled: then `cancel` is called, once at most, on the thread that cancels.
pub(crate) fn cancellable<T>(
    event_loop: Option<u32>,
    cancel: impl Fn() + Send + Sync + 'static,
) -> (Completer<T>, Completion<T>) {
    pair(Loops::One(event_loop), Some(Box::new(cancel)))
}

/// As [`completion`], for what is done only when each of several loops has done its part.
pub(crate) fn completion_of_all<T>(event_loops: Box<[u32]>) -> (Completer<T>, Completion<T>) {
    pair(Loops::All(event_loops), None)
}

/// As [`cancellable`], for what any of several loops may have to do.
pub(crate) fn cancellable_of_all<T>(
    event_loops: Box<[u32]>,
    cancel: impl Fn() + Send + Sync + 'static,
) -> (Completer<T>, Completion<T>) {
    pair(Loops::All(event_loops), Some(Box::new(cancel)))
}

fn pair<T>(event_loops: Loops, cancel: Option<Cancel>) -> (Completer<T>, Completion<T>) {
    let state = Mutex::new(State::Pending { waker: None, callback: None });
    let inner = Arc::new(Inner { event_loops, cancel, state, done: Condvar::new() });
    (Completer { inner: inner.clone() }, Completion { inner })
}

impl Loops {
    /// Whether the calling thread is one of them.
    fn is_here(&self) -> bool {
        match self {
            Loops::One(event_loop) => event_loop.is_some_and(loop_id::is_own),
            Loops::All(event_loops) => event_loops.iter().copied().any(loop_id::is_own),
        }
    }
}

impl<T> Inner<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is whole at every moment, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was the first result: the others are dropped.
    fn complete(&self, result: Result<T>) -> bool {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Pending { callback: Some(callback), .. } => {
                drop(state);
                // The completing thread may be a loop, which must not end because of somebody's callback.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(result))) {
                    log::error!("a completion's callback panicked: {}", panic_message(panic));
                }
            }
            State::Pending { waker, callback: None } => {
                *state = State::Done(result);
                drop(state);
                self.done.notify_all();
                if let Some(waker) = waker
                    && let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake()))
                {
                    log::error!("the waker of a completion's task panicked: {}", panic_message(panic));
                }
            }
            first => {
                *state = first;
                return false;
            }
        }
        true
    }
}

impl<T> Completion<T> {
    /// A completion that is done already.
    pub(crate) fn ready(result: Result<T>) -> Self {
        let (completer, completion) = completion(None);
        completer.complete(result);
        completion
    }

    /// Whether the result is there.
    pub fn is_done(&self) -> bool {
        !matches!(*self.inner.lock(), State::Pending { .. })
    }

    /// Blocks the calling thread until it is done.
    ///
    /// # Errors
    /// What the operation failed with; [`Error::WouldDeadlock`] at once on the event loop that has to complete it,
    /// or on the thread that drives this loop by hand ([`ManualEventLoop`](crate::ManualEventLoop)).
    pub fn wait(self) -> Result<T> {
        self.wait_until(None).unwrap_or(Err(Error::Cancelled))
    }

    /// Blocks the calling thread until it is done, or `timeout` has passed; then the completion is handed back.
    ///
    /// # Errors
    /// `Err` is the completion itself, not done yet. What the operation answered, good or bad, is in `Ok`.
    pub fn wait_timeout(self, timeout: Duration) -> std::result::Result<Result<T>, Self> {
        match self.wait_until(Instant::now().checked_add(timeout)) {
            Some(result) => Ok(result),
            None => Err(self),
        }
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Result<T>> {
        let mut state = self.inner.lock();
        let mut time_is_up = false;
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Done(result) => return Some(result),
                State::Taken => return Some(Err(Error::Cancelled)),
                pending => *state = pending,
            }
            if self.inner.event_loops.is_here() {
                return Some(Err(Error::WouldDeadlock));
            }
            if time_is_up {
                return None;
            }
            let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let wait = self.inner.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            (state, time_is_up) = (wait.0, wait.1.timed_out());
        }
    }

    /// Calls `callback` with the result: on the completing thread (usually the event loop, so it must not block),
    /// or here and now if it is done. The completing thread logs a panic in it and goes on.
    pub fn on_complete(self, callback: impl FnOnce(Result<T>) + Send + 'static) {
        let mut state = self.inner.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Pending { .. } => {
                *state = State::Pending { waker: None, callback: Some(Box::new(callback)) };
            }
            State::Done(result) => {
                drop(state);
                callback(result);
            }
            State::Taken => {}
        }
    }

    /// Cancels what is under way: a connection that is being made, an acquire of a pool that waits.
    ///
    /// True if that ended it: it completes with [`Error::Cancelled`] at once, and what was begun is undone soon, on its
    /// event loop. False if it is done already, or of a kind that cannot be cancelled. Any thread may call this;
    /// merely dropping a completion cancels nothing.
    ///
    /// ```
    /// # use netwheel::{codec::RawBytes, prelude::*};
    /// # struct Quiet;
    /// # impl Handler for Quiet {
    /// #   type In = bytes::Bytes; type Out = bytes::Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// # }
    /// # fn main() -> Result {
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let client = ClientBootstrap::new(&group).pipeline(|_peer| Pipeline::new().codec(RawBytes).handler(Quiet));
    /// let connecting = client.connect("127.0.0.1:9");
    /// if connecting.cancel() {
    ///     assert!(matches!(connecting.wait(), Err(Error::Cancelled)));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self) -> bool {
        let Some(cancel) = &self.inner.cancel else { return false };
        let first = self.inner.complete(Err(Error::Cancelled));
        if first {
            cancel();
        }
        first
    }

    /// Does not want to know the result.
    pub fn detach(self) {}
}

impl<T> Future for Completion<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.inner.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(result) => Poll::Ready(result),
            State::Taken => Poll::Ready(Err(Error::Cancelled)),
            State::Pending { callback, .. } => {
                *state = State::Pending { waker: Some(cx.waker().clone()), callback };
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").field("done", &self.is_done()).finish()
    }
}

impl<T> Completer<T> {
    /// Delivers the result; the first one counts.
    pub(crate) fn complete(self, result: Result<T>) {
        self.inner.complete(result);
    }

    /// As [`complete`](Completer::complete); false if it was cancelled, and the result is dropped.
    pub(crate) fn deliver(self, result: Result<T>) -> bool {
        self.inner.complete(result)
    }

    /// Whether a result would be the first: it was not cancelled.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(*self.inner.lock(), State::Pending { .. })
    }

    /// Whether anybody would get a result: it was neither cancelled nor dropped.
    pub(crate) fn is_awaited(&self) -> bool {
        match *self.inner.lock() {
            State::Pending { callback: Some(_), .. } => true,
            State::Pending { callback: None, .. } => Arc::strong_count(&self.inner) > 1,
            _ => false,
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        // After `complete` this finds the result there and leaves it.
        if self.is_pending() {
            self.inner.complete(Err(Error::Cancelled));
        }
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_awaited_until_it_is_there_or_nobody_can_ask_for_it() {
        let (kept, completion) = super::completion::<()>(None);
        assert!(kept.is_awaited());
        drop(completion);
        assert!(kept.is_pending() && !kept.is_awaited(), "dropped");

        let (called_back, completion) = super::completion::<()>(None);
        completion.on_complete(drop);
        assert!(called_back.is_awaited());

        let (cancelled, completion) = cancellable::<()>(None, || ());
        assert!(completion.cancel());
        assert!(!cancelled.is_pending() && !cancelled.is_awaited());
    }
}
