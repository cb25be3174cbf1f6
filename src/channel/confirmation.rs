//! The completion of a write or another request, which completes in any case.

use crate::{
    error::{Error, Result},
    sync::{Completer, Completion, completion},
};

/// Completes a write or another request. Fails it with [`Error::Closed`] when dropped.
pub(crate) struct Confirmation<T = ()>(Option<Completer<T>>);

impl<T> Confirmation<T> {
    pub(crate) fn new(event_loop: u32) -> (Self, Completion<T>) {
        let (completer, completion) = completion(Some(event_loop));
        (Confirmation(Some(completer)), completion)
    }

    /// Creates a pair for a request that ends when its completion is cancelled or dropped.
    pub(crate) fn cancellable(event_loop: u32) -> (Self, Completion<T>) {
        let (completer, completion) = Completer::new(event_loop);
        (Confirmation(Some(completer)), completion)
    }

    /// Returns whether the completion was cancelled or dropped, if it is cancellable.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(Completer::is_cancelled)
    }

    /// Returns the completer, which a drop fails with [`Error::Cancelled`] from now on.
    pub(crate) fn into_completer(mut self) -> Completer<T> {
        self.0.take().expect("taken only by `complete` and drop, which consume the confirmation")
    }

    pub(crate) fn complete(mut self, result: Result<T>) {
        if let Some(completer) = self.0.take() {
            completer.complete(result);
        }
    }
}

impl<T> Drop for Confirmation<T> {
    fn drop(&mut self) {
        if let Some(completer) = self.0.take() {
            completer.complete(Err(Error::Closed));
        }
    }
}
