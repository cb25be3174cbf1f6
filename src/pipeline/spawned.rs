//! A handler's future on its way through an executor.
//!
//! `ctx.spawn(future, then)` creates a completion. `then` becomes a task of the channel that owns
//! the consumer's side. The future owns the producer's side, and is wrapped in [`Spawned`]. So a
//! task that is dropped with its channel cancels the completion, which wakes the wrapper, which
//! drops the future. An executor that drops the wrapper completes with [`Error::Cancelled`].
//!
//! Until its first poll the future is in a slot that the loop shares, so that a refused future can
//! be returned to the handler.

use crate::{
    error::{Error, drop_guarded, panic_message},
    machine::Mutex,
    sync::Completer,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// A future that has not been polled.
pub(in crate::pipeline) struct Slot<F>(Arc<Mutex<Option<F>>>);

/// Runs a future and completes a completion with its output. Ends when the completion is cancelled.
pub(in crate::pipeline) struct Spawned<F: Future> {
    slot: Slot<F>,
    running: Option<Pin<Box<F>>>,
    completer: Option<Completer<F::Output>>,
}

impl<F> Slot<F> {
    /// Takes the future, unless it has been polled.
    pub(in crate::pipeline) fn take(&self) -> Option<F> {
        self.0.lock().take()
    }
}

impl<F: Future> Spawned<F> {
    pub(in crate::pipeline) fn new(future: F, completer: Completer<F::Output>) -> (Self, Slot<F>) {
        let slot = Arc::new(Mutex::new(Some(future)));
        (Spawned { slot: Slot(slot.clone()), running: None, completer: Some(completer) }, Slot(slot))
    }

    /// Drops the future, whose destructor may panic.
    fn drop_future(&mut self) {
        drop_guarded((self.running.take(), self.slot.take()));
    }
}

impl<F: Future> Future for Spawned<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(completer) = &mut this.completer else { return Poll::Ready(()) };
        if completer.poll_cancelled(cx).is_ready() {
            this.completer = None;
            this.drop_future();
            return Poll::Ready(());
        }
        if this.running.is_none() {
            this.running = this.slot.take().map(Box::pin);
        }
        let Some(running) = &mut this.running else { return Poll::Ready(()) };
        let result = match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(Error::panicked(panic_message(panic))),
        };
        this.drop_future();
        if let Some(completer) = this.completer.take() {
            completer.complete(result);
        }
        Poll::Ready(())
    }
}
