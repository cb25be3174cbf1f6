//! The completion of a write or another request, which completes in any case.

use crate::{
    Error, Result,
    sync::{Completer, Completion, completion},
};

/// Completes a write or another request. Fails it with [`Error::Closed`] when dropped.
pub(crate) struct Confirmation<T = ()>(Option<Completer<T>>);

impl<T> Confirmation<T> {
    pub(crate) fn new(event_loop: u32) -> (Self, Completion<T>) {
        let (completer, completion) = completion(Some(event_loop));
        (Confirmation(Some(completer)), completion)
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
