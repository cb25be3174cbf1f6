//! The producer's side of a completion.

use super::{Completion, CompletionShared, CompletionState, OnCancel, Unwanted, cancellable};
use crate::error::{Error, Result, drop_guarded};
use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

/// The producer's side of a [`Completion`]: delivers its result, from any thread.
///
/// [`Context::completer`](crate::Context::completer) and
/// [`EventLoop::completer`](crate::EventLoop::completer) create a pair.
/// [`HandlerRef::request`](crate::HandlerRef::request) gives one to a handler, which can keep it
/// until it knows the answer. Also known as a promise.
///
/// The first of a result and a cancel counts. The consumer cancels with
/// [`Completion::cancel`], or by dropping the pending completion. Dropping the completer
/// without a result completes with [`Error::Cancelled`].
///
/// ```
/// use netwheel::{Completer, HandlerRef, prelude::*};
/// use bytes::Bytes;
/// use std::collections::VecDeque;
///
/// /// A client of a server that answers requests in order.
/// struct Client { pending: VecDeque<Completer<Bytes>> }
///
/// impl Handler for Client {
///     type Read = Bytes;
///     type Write = Bytes;
///
///     fn read(&mut self, _: &mut Context<'_, Self>, answer: Bytes) -> Result {
///         if let Some(completer) = self.pending.pop_front() {
///             completer.complete(Ok(answer));
///         }
///         Ok(())
///     }
/// }
///
/// fn ask(client: &HandlerRef<Client>, question: Bytes) -> Completion<Bytes> {
///     client.request(|me, ctx, completer| {
///         ctx.write(question)?;
///         me.pending.push_back(completer);
///         Ok(())
///     })
/// }
/// ```
#[doc(alias = "Promise")]
#[doc(alias = "EventLoopPromise")]
#[doc(alias = "oneshot")]
pub struct Completer<T = ()> {
    pub(super) inner: Arc<CompletionShared<T>>,
}

impl<T> Completer<T> {
    /// Returns a pair that event loop `event_loop` usually completes.
    pub(crate) fn new(event_loop: u32) -> (Self, Completion<T>) {
        cancellable(Some(event_loop), |unwanted| {
            // The operation itself is cancelled through `on_cancel`.
            if let Unwanted::Result(value) = unwanted {
                drop_guarded(value);
            }
        })
    }

    /// Delivers the result. A cancelled completion drops it.
    ///
    /// A callback of the completion runs on this thread before this method returns.
    pub fn complete(self, result: Result<T>) {
        self.inner.complete(result);
    }

    /// Returns whether the consumer has cancelled the operation or dropped the completion.
    pub fn is_cancelled(&self) -> bool {
        // While the completer exists, nothing else ends the operation.
        !self.is_pending()
    }

    /// Calls `callback` when the consumer cancels the operation or drops the completion. Calls it
    /// immediately if that has happened.
    ///
    /// The callback runs on the thread that cancels, so it must not block. A panic in it is logged.
    /// It replaces an earlier callback, and is dropped when there is a result.
    pub fn on_cancel(&mut self, callback: impl FnOnce() + Send + 'static) {
        if let Err(on_cancel) = self.set_on_cancel(OnCancel::Call(Box::new(callback))) {
            on_cancel.run();
        }
    }

    /// Returns `Ready` if the operation is cancelled, and has the task woken when it is. Replaces a
    /// callback of [`on_cancel`](Completer::on_cancel).
    pub(crate) fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.set_on_cancel(OnCancel::Wake(cx.waker().clone())) {
            Ok(()) => Poll::Pending,
            Err(_) => Poll::Ready(()),
        }
    }

    /// Returns the callback if the operation is cancelled already.
    fn set_on_cancel(&self, new: OnCancel) -> Result<(), OnCancel> {
        let mut state = self.inner.state.lock();
        let unused = match &mut *state {
            CompletionState::Pending { on_cancel, .. } => on_cancel.replace(new),
            // Nobody is left to cancel it.
            CompletionState::Detached => Some(new),
            CompletionState::Done(_) | CompletionState::Taken => return Err(new),
        };
        // Dropping a callback may run code of the program, which must not happen under the lock.
        drop(state);
        drop_guarded(unused);
        Ok(())
    }

    /// Delivers the result like [`complete`](Completer::complete). Returns `false` if the operation
    /// was cancelled, so that the result is dropped.
    pub(crate) fn deliver(self, result: Result<T>) -> bool {
        self.inner.complete(result)
    }

    /// Returns whether there is neither a result nor a cancel.
    pub(crate) fn is_pending(&self) -> bool {
        self.inner.state.lock().is_pending()
    }

    /// Returns whether a consumer would get a result: it has neither cancelled nor dropped the
    /// completion.
    pub(crate) fn is_awaited(&self) -> bool {
        match *self.inner.state.lock() {
            CompletionState::Pending { callback: Some(_), .. } => true,
            CompletionState::Pending { callback: None, .. } => Arc::strong_count(&self.inner) > 1,
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

impl<T> fmt::Debug for Completer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer").field("cancelled", &self.is_cancelled()).finish()
    }
}
