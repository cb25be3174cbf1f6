//! Writes that want to know when the kernel has their last byte.
//!
//! Always holds: they are answered once each, in the order in which they were written; a channel that closes answers all
//! that are left with what closed it. Who is answered runs at once on the channel's loop, and can reach the channel only
//! through its handle: so nothing that it does happens within the flush. Runs on the channel's loop.

use super::state::ChannelState;
use crate::{
    Error, Result,
    sync::{Completer, Completion, completion},
};
use std::collections::VecDeque;

/// Writes of a channel that may wait for their answer.
pub(crate) const MAX_UNCONFIRMED: usize = 65_536;

/// Who waits to hear that a write is done; told that the channel is closed if nobody says otherwise.
pub(crate) struct Confirmation(Option<Completer>);

impl Confirmation {
    pub(crate) fn new(event_loop: u32) -> (Self, Completion) {
        let (completer, completion) = completion(Some(event_loop));
        (Confirmation(Some(completer)), completion)
    }

    pub(crate) fn complete(mut self, result: Result) {
        if let Some(completer) = self.0.take() {
            completer.complete(result);
        }
    }
}

impl Drop for Confirmation {
    fn drop(&mut self) {
        if let Some(completer) = self.0.take() {
            completer.complete(Err(Error::Closed));
        }
    }
}

#[derive(Default)]
pub(crate) struct Confirmations {
    /// Bytes taken by the kernel since this was made.
    taken: u64,
    /// The byte behind the last one of each write, counted likewise.
    waiting: VecDeque<(u64, Confirmation)>,
    /// What closes the channel, if it was an error.
    cause: Option<Error>,
}

impl ChannelState {
    /// # Errors
    /// If as many wait as may.
    pub(crate) fn may_confirm(&self) -> Result {
        match &self.confirmations {
            Some(all) if all.waiting.len() >= MAX_UNCONFIRMED => {
                Err(Error::Full { what: "unconfirmed writes of a channel", limit: MAX_UNCONFIRMED })
            }
            _ => Ok(()),
        }
    }

    /// Answers when all bytes that wait now are taken.
    pub(crate) fn confirm(&mut self, confirmation: Confirmation) {
        let pending = self.pending_bytes() as u64;
        if pending == 0 {
            confirmation.complete(Ok(()));
            return;
        }
        let all = self.confirmations.get_or_insert_default();
        all.waiting.push_back((all.taken + pending, confirmation));
    }

    /// The kernel took `n` bytes.
    #[inline]
    pub(crate) fn confirm_taken(&mut self, n: usize) {
        if let Some(all) = &mut self.confirmations {
            all.take(n);
        }
    }

    /// An error has closed the channel.
    pub(crate) fn note_cause(&mut self, cause: impl FnOnce() -> Error) {
        if let Some(all) = &mut self.confirmations {
            all.cause.get_or_insert_with(cause);
        }
    }

    /// The channel is closed: nothing more will be taken.
    pub(crate) fn confirm_nothing_more(&mut self) {
        let Some(all) = self.confirmations.take() else { return };
        for (_, confirmation) in all.waiting {
            confirmation.complete(Err(all.cause.as_ref().map_or(Error::Closed, Error::again)));
        }
    }
}

impl Confirmations {
    fn take(&mut self, n: usize) {
        self.taken += n as u64;
        while self.waiting.front().is_some_and(|(end, _)| *end <= self.taken) {
            if let Some((_, confirmation)) = self.waiting.pop_front() {
                confirmation.complete(Ok(()));
            }
        }
        if self.waiting.is_empty() {
            self.waiting.shrink_to(64);
        }
    }
}
