//! A value that is produced later, on another thread or by a callback.
//!
//! # Invariants
//!
//! - Exactly one result is delivered, in exactly one way: to a wait, to a callback, or to a
//!   `Future`.
//! - Dropping the producer without a result completes with [`Error::Cancelled`].
//! - So does cancelling an operation that supports it. The producer is then notified, and its own
//!   result is dropped.
//! - Dropping a cancellable completion cancels its operation. A result that arrived before the drop
//!   is returned to the operation, which releases it. So a drop and a result that race release the
//!   value exactly once.
//! - A callback runs on the completing thread, or at once on the calling thread if the result is
//!   available. The completing thread catches and logs its panics. `trampoline` bounds the
//!   recursion.
//! - The lock is not held while code of the program runs: callbacks, wakers, destructors of results
//!   and of wakers.
//! - Waiting on a loop that has to complete the operation is an error. So is waiting on a thread
//!   that drives such a loop by hand.

mod completer;
mod trampoline;

pub use completer::Completer;

use super::{
    loop_id,
    primitives::{Condvar, Mutex},
};
use crate::{
    error::{Error, Result, drop_guarded},
    machine,
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use trampoline::log_panic;

/// The consumer's side of an operation that completes later.
///
/// [`wait`](Completion::wait), [`on_complete`](Completion::on_complete) and `.await` take the
/// result. Dropping the completion of an operation that can be cancelled cancels it:
///
/// | operation | effect of a drop |
/// |---|---|
/// | [`ClientBootstrap::connect`](crate::ClientBootstrap::connect) | closes the connection, established or not |
/// | [`ChannelPool::acquire`](crate::pool::ChannelPool::acquire) | leaves the queue; returns an acquired channel to the pool |
/// | a call of an HTTP client, also through a pool | discards its connection |
/// | a command of a Redis client | skips a command that was not sent; otherwise ignores the reply |
/// | [`HandlerRef::call`](crate::HandlerRef::call), [`HandlerRef::request`](crate::HandlerRef::request) | skips a closure that has not run; cancels the [`Completer`] |
/// | a pair of [`Context::completer`](crate::Context::completer) or [`EventLoop::completer`](crate::EventLoop::completer) | cancels the [`Completer`] |
/// | writes, `closed`, `shutdown`, `terminated`, `stats`, [`EventLoop::call`](crate::EventLoop::call), scheduled tasks, event sources, durable timers | none: the operation continues |
///
/// So a timeout around a pending operation, such as `tokio::time::timeout(d,
/// client.connect(address))`, leaks nothing. [`detach`](Completion::detach) lets the operation
/// continue and ignores the result.
///
/// ```no_run
/// # use {netwheel::{prelude::*, shutdown::ShutdownOptions}, std::time::Duration};
/// # fn f(group: &EventLoopGroup) -> Result {
/// let completion = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO));
/// completion.wait()?; // or .on_complete(|result| ..), or .await
/// # Ok(())
/// # }
/// ```
#[must_use = "wait for it, add a callback, or call `.detach()` to ignore the result; dropping it cancels \
              the operations that the docs of `Completion` list, such as a connect, and no others, such as \
              a shutdown"]
#[doc(alias = "Future")]
#[doc(alias = "ChannelFuture")]
#[doc(alias = "EventLoopFuture")]
#[doc(alias = "JoinHandle")]
pub struct Completion<T = ()> {
    inner: Arc<CompletionShared<T>>,
}

struct CompletionShared<T> {
    /// The loops that must run to complete the operation; usually one.
    event_loops: Loops,
    /// Notifies the producer that the result is not wanted. `None` if the operation cannot be
    /// cancelled.
    cancel: Option<Cancel<T>>,
    state: Mutex<CompletionState<T>>,
    done: Condvar,
}

enum CompletionState<T> {
    Pending {
        waker: Option<Waker>,
        callback: Option<Callback<T>>,
        on_cancel: Option<OnCancel>,
    },
    /// Still running, but the result will be dropped.
    Detached,
    Done(Result<T>),
    Taken,
}

impl<T> CompletionState<T> {
    fn is_pending(&self) -> bool {
        matches!(self, CompletionState::Pending { .. } | CompletionState::Detached)
    }
}

/// What a [`Completer`] wants when its operation is cancelled.
enum OnCancel {
    Call(Box<dyn FnOnce() + Send>),
    Wake(Waker),
}

impl OnCancel {
    /// Runs on the cancelling thread, so a panic in the program's code is logged.
    fn run(self) {
        let run = || match self {
            OnCancel::Call(call) => call(),
            OnCancel::Wake(waker) => waker.wake(),
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            log_panic("the callback of a cancelled completer", panic);
        }
    }
}

enum Loops {
    One(Option<u32>),
    All(Box<[u32]>),
}

type Callback<T> = Box<dyn FnOnce(Result<T>) + Send>;
type Cancel<T> = Box<dyn Fn(Unwanted<T>) + Send + Sync>;

/// The part of a cancellable operation that must be undone.
pub(crate) enum Unwanted<T> {
    /// The operation itself, which is still running.
    Operation,
    /// A result that the consumer did not take.
    Result(T),
}

/// Creates both sides of a completion. `event_loop` is the loop that will complete it.
pub(crate) fn completion<T>(event_loop: Option<u32>) -> (Completer<T>, Completion<T>) {
    pair(Loops::One(event_loop), None)
}

/// Creates both sides for an operation that can be cancelled. `cancel` is called at most once, on
/// the thread that cancels or drops the completion.
pub(crate) fn cancellable<T>(
    event_loop: Option<u32>,
    cancel: impl Fn(Unwanted<T>) + Send + Sync + 'static,
) -> (Completer<T>, Completion<T>) {
    pair(Loops::One(event_loop), Some(Box::new(cancel)))
}

/// Like [`completion`], for an operation in which each of several loops takes part.
pub(crate) fn completion_of_all<T>(event_loops: Box<[u32]>) -> (Completer<T>, Completion<T>) {
    pair(Loops::All(event_loops), None)
}

/// Like [`cancellable`], for an operation in which any of several loops may take part.
pub(crate) fn cancellable_of_all<T>(
    event_loops: Box<[u32]>,
    cancel: impl Fn(Unwanted<T>) + Send + Sync + 'static,
) -> (Completer<T>, Completion<T>) {
    pair(Loops::All(event_loops), Some(Box::new(cancel)))
}

fn pair<T>(event_loops: Loops, cancel: Option<Cancel<T>>) -> (Completer<T>, Completion<T>) {
    let state = Mutex::new(CompletionState::Pending { waker: None, callback: None, on_cancel: None });
    let inner = Arc::new(CompletionShared { event_loops, cancel, state, done: Condvar::new() });
    (Completer { inner: inner.clone() }, Completion { inner })
}

impl Loops {
    /// Returns whether the calling thread is one of the loops, or drives one.
    fn is_here(&self) -> bool {
        let is_here = |event_loop| {
            loop_id::is_own(event_loop) || machine::runs_loop(event_loop) || machine::runs_all_loops()
        };
        match self {
            Loops::One(event_loop) => event_loop.is_some_and(is_here),
            Loops::All(event_loops) => event_loops.iter().copied().any(is_here),
        }
    }
}

impl<T> CompletionShared<T> {
    /// Delivers the result unless there is one. Returns whether this was the first result; later
    /// ones are dropped.
    fn complete(&self, result: Result<T>) -> bool {
        let Some(on_cancel) = self.finish(result) else { return false };
        if on_cancel.is_some() {
            drop_guarded(on_cancel);
        }
        true
    }

    /// Delivers the first result, and returns the producer's callback for a cancel. `None` if there
    /// was a result before.
    fn finish(&self, result: Result<T>) -> Option<Option<OnCancel>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, CompletionState::Taken) {
            CompletionState::Pending { callback: Some(callback), on_cancel, .. } => {
                drop(state);
                // The completing thread may be a loop, which must survive a panic in a callback.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(result))) {
                    log_panic("a completion's callback", panic);
                }
                Some(on_cancel)
            }
            CompletionState::Pending { waker, callback: None, on_cancel } => {
                *state = CompletionState::Done(result);
                drop(state);
                self.done.notify_all();
                if let Some(waker) = waker
                    && let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake()))
                {
                    log_panic("the waker of a completion's task", panic);
                }
                Some(on_cancel)
            }
            CompletionState::Detached => {
                drop(state);
                drop_guarded(result);
                Some(None)
            }
            first => {
                *state = first;
                None
            }
        }
    }

    /// Cancels the operation, or releases its result, unless a callback or `detach` has claimed the
    /// result.
    #[cold]
    fn give_up(&self, cancel: &Cancel<T>) {
        let mut state = self.state.lock();
        let unwanted = match std::mem::replace(&mut *state, CompletionState::Taken) {
            wanted @ (CompletionState::Detached | CompletionState::Pending { callback: Some(_), .. }) => {
                *state = wanted;
                return;
            }
            CompletionState::Pending { waker, callback: None, on_cancel } => {
                // Dropping a waker may drop a task and run its destructors, so the lock is released
                // first.
                drop(state);
                drop(waker);
                if let Some(on_cancel) = on_cancel {
                    on_cancel.run();
                }
                Unwanted::Operation
            }
            CompletionState::Done(Ok(value)) => {
                drop(state);
                Unwanted::Result(value)
            }
            nothing @ (CompletionState::Done(Err(_)) | CompletionState::Taken) => {
                // The error may contain a value of the program.
                drop(state);
                drop(nothing);
                return;
            }
        };
        cancel(unwanted);
    }
}

impl<T> Completion<T> {
    /// Creates a completion that is already done.
    pub(crate) fn ready(result: Result<T>) -> Self {
        let (completer, completion) = completion(None);
        completer.complete(result);
        completion
    }

    /// Wakes `waker` when there is a result, at once if there is one. The result stays.
    pub(crate) fn wake_when_done(&self, waker: Waker) {
        let mut state = self.inner.state.lock();
        if let CompletionState::Pending { waker: waiting, .. } = &mut *state {
            let earlier = waiting.replace(waker);
            drop(state);
            drop(earlier);
        } else {
            drop(state);
            waker.wake();
        }
    }

    /// Takes the result if there is one.
    pub(crate) fn take(self) -> Option<Result<T>> {
        let mut state = self.inner.state.lock();
        match std::mem::replace(&mut *state, CompletionState::Taken) {
            CompletionState::Done(result) => Some(result),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Returns whether the result is available.
    pub fn is_done(&self) -> bool {
        !self.inner.state.lock().is_pending()
    }

    /// Blocks the calling thread until the operation is done.
    ///
    /// # Errors
    ///
    /// - [`Error::WouldDeadlock`] immediately if called on the event loop that has to complete the
    ///   operation, or on the thread that drives this loop by hand
    ///   ([`ManualEventLoop`](crate::group::ManualEventLoop)).
    /// - The error of the operation if it fails.
    pub fn wait(self) -> Result<T> {
        self.wait_until(None).unwrap_or(Err(Error::Cancelled))
    }

    /// Blocks the calling thread until the operation is done or `timeout` has passed.
    ///
    /// `Ok` contains the result of the operation, which may itself be an error. The timeout is
    /// measured in real time, regardless of the loop's [`Clock`](crate::time::Clock).
    ///
    /// # Errors
    ///
    /// The completion itself if the timeout has passed.
    pub fn wait_timeout(self, timeout: Duration) -> std::result::Result<Result<T>, Self> {
        match self.wait_until(machine::now().checked_add(timeout)) {
            Some(result) => Ok(result),
            None => Err(self),
        }
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Result<T>> {
        let mut state = self.inner.state.lock();
        let mut time_is_up = false;
        loop {
            match std::mem::replace(&mut *state, CompletionState::Taken) {
                CompletionState::Done(result) => {
                    drop(state);
                    // The result may be one of the end of the process.
                    machine::stop_if_killed();
                    return Some(result);
                }
                CompletionState::Taken => return Some(Err(Error::Cancelled)),
                pending @ (CompletionState::Pending { .. } | CompletionState::Detached) => *state = pending,
            }
            if self.inner.event_loops.is_here() {
                return Some(Err(Error::WouldDeadlock));
            }
            if time_is_up {
                return None;
            }
            let left = deadline.map(|at| at.saturating_duration_since(machine::now()));
            (state, time_is_up) = self.inner.done.wait(&self.inner.state, state, left);
        }
    }

    /// Calls `callback` with the result.
    ///
    /// If the operation is done, the callback runs on this thread before `on_complete` returns.
    /// Otherwise it runs on the completing thread, usually the event loop, so it must not block.
    /// The completing thread logs a panic in the callback and continues.
    ///
    /// A callback may itself call `on_complete` on a completion that is done. At most 8 callbacks
    /// are nested. Further callbacks are queued, and run in order on the same thread when the
    /// outermost callback has returned. A panic in a queued callback is logged. A chain of
    /// callbacks of any length therefore cannot overflow the stack, but keeps its thread busy until
    /// it ends.
    pub fn on_complete(self, callback: impl FnOnce(Result<T>) + Send + 'static)
    where
        T: 'static,
    {
        let callback = move |result| {
            if !machine::is_killed() {
                trampoline::run(move || callback(result));
            }
        };
        let mut state = self.inner.state.lock();
        match std::mem::replace(&mut *state, CompletionState::Taken) {
            CompletionState::Pending { waker, on_cancel, .. } => {
                let callback: Option<Callback<T>> = Some(Box::new(callback));
                *state = CompletionState::Pending { waker: None, callback, on_cancel };
                // As in `poll`.
                drop(state);
                drop(waker);
            }
            CompletionState::Done(result) => {
                drop(state);
                callback(result);
            }
            CompletionState::Taken | CompletionState::Detached => {}
        }
    }

    /// Cancels a pending operation: a connect, or an acquire of a pool.
    ///
    /// Returns `true` if this call ended the operation. The completion then fails with
    /// [`Error::Cancelled`] immediately, and the event loop releases the socket soon after. Returns
    /// `false` if the operation is done or cannot be cancelled. Thread-safe. Dropping the
    /// completion also cancels the operation.
    ///
    /// ```
    /// # use netwheel::{codec::RawBytes, prelude::*};
    /// # struct Quiet;
    /// # impl Handler for Quiet {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// # }
    /// # fn main() -> Result {
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let client = ClientBootstrap::new(&group)
    ///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Quiet));
    /// let connecting = client.connect("127.0.0.1:9");
    /// if connecting.cancel() {
    ///     assert!(matches!(connecting.wait(), Err(Error::Cancelled)));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self) -> bool {
        let Some(cancel) = &self.inner.cancel else { return false };
        let Some(on_cancel) = self.inner.finish(Err(Error::Cancelled)) else { return false };
        if let Some(on_cancel) = on_cancel {
            on_cancel.run();
        }
        cancel(Unwanted::Operation);
        true
    }

    /// Lets the operation continue and drops its result. For an operation that a drop does not
    /// cancel, this is the same as a drop, and states that the result is ignored on purpose.
    ///
    /// A channel made by [`ClientBootstrap::connect`](crate::ClientBootstrap::connect) stays open,
    /// and its handler serves it. A channel acquired from a pool returns to the pool.
    pub fn detach(self) {
        // Dropping any other completion does not affect its operation.
        if self.inner.cancel.is_some() {
            let mut state = self.inner.state.lock();
            match std::mem::replace(&mut *state, CompletionState::Taken) {
                CompletionState::Pending { waker, on_cancel, .. } => {
                    *state = CompletionState::Detached;
                    drop(state);
                    drop((waker, on_cancel));
                }
                done => {
                    drop(state);
                    drop(done);
                }
            }
        }
    }
}

impl<T> Drop for Completion<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(cancel) = &self.inner.cancel {
            self.inner.give_up(cancel);
        }
    }
}

impl<T> Future for Completion<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        // Cloning and dropping a waker runs code of the task's executor. The last reference to a
        // task may own the completer of this completion. So both happen without the lock.
        let mut next = None;
        loop {
            let mut state = self.inner.state.lock();
            if let CompletionState::Pending { waker, .. } = &mut *state {
                if waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    return Poll::Pending;
                }
                if next.is_some() {
                    let earlier = std::mem::replace(waker, next.take());
                    drop(state);
                    drop(earlier);
                    return Poll::Pending;
                }
            } else {
                return match std::mem::replace(&mut *state, CompletionState::Taken) {
                    CompletionState::Done(result) => Poll::Ready(result),
                    _ => Poll::Ready(Err(Error::Cancelled)),
                };
            }
            drop(state);
            next = Some(cx.waker().clone());
        }
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").field("done", &self.is_done()).finish()
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_awaited_until_it_arrives_or_the_completion_is_dropped() {
        let (kept, completion) = super::completion::<()>(None);
        assert!(kept.is_awaited());
        drop(completion);
        assert!(kept.is_pending() && !kept.is_awaited(), "dropped");

        let (called_back, completion) = super::completion::<()>(None);
        completion.on_complete(drop);
        assert!(called_back.is_awaited());

        let (cancelled, completion) = cancellable::<()>(None, |_| ());
        assert!(completion.cancel());
        assert!(!cancelled.is_pending() && !cancelled.is_awaited());
    }

    /// A cancellable pair, and a channel that receives each call of its cancel hook.
    fn undone() -> (Completer<u8>, Completion<u8>, std::sync::mpsc::Receiver<Option<u8>>) {
        let (told, undone) = std::sync::mpsc::channel();
        let (completer, completion) = cancellable(None, move |unwanted| {
            let _ = told.send(match unwanted {
                Unwanted::Operation => None,
                Unwanted::Result(value) => Some(value),
            });
        });
        (completer, completion, undone)
    }

    #[test]
    fn dropping_cancels_the_operation_or_hands_its_result_back() {
        let (completer, completion, undone) = self::undone();
        drop(completion);
        assert_eq!(undone.try_recv(), Ok(None));
        assert!(!completer.is_pending());
        assert!(!completer.deliver(Ok(1)), "the producer keeps an unwanted result");

        let (completer, completion, undone) = self::undone();
        assert!(completer.deliver(Ok(2)));
        drop(completion);
        assert_eq!(undone.try_recv(), Ok(Some(2)));

        let (completer, completion, undone) = self::undone();
        completer.complete(Err(Error::Closed));
        drop(completion);
        assert!(undone.try_recv().is_err(), "an error needs no undo");
    }

    #[test]
    fn a_result_that_is_taken_or_detached_is_not_undone() {
        let (completer, completion, undone) = self::undone();
        completion.detach();
        assert!(completer.deliver(Ok(1)));
        assert!(undone.try_recv().is_err(), "detached before the result");

        let (completer, completion, undone) = self::undone();
        assert!(completer.deliver(Ok(1)));
        completion.detach();
        assert!(undone.try_recv().is_err(), "detached after the result");

        let (completer, completion, undone) = self::undone();
        completion.on_complete(drop);
        assert!(completer.deliver(Ok(1)));
        let (completer, completion, again) = self::undone();
        completer.complete(Ok(1));
        assert_eq!(completion.wait().unwrap(), 1);
        assert!(undone.try_recv().is_err() && again.try_recv().is_err());

        let (_completer, completion, undone) = self::undone();
        assert!(completion.cancel());
        drop(completion);
        assert_eq!(undone.try_iter().count(), 1, "cancelled once");
    }
}
