//! The answer to a write or to another request, which is given in any case.

use crate::{
    Error, Result,
    sync::{Completer, Completion, completion},
};

/// Who waits to hear that a write is done, or for another answer of a channel; told that the channel is closed if nobody
/// says otherwise.
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
