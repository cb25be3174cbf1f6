//! `LoggedError`: an error that was logged where it occurred, before `error` is called with it.
//!
//! Panics and slow peers are logged by the core, because a handler need not log the argument of
//! its `error`. The default `error` would log them a second time.
//!
//! Invariant: one entry per loop. It names its channel, which closes because of the error, so an
//! old entry never concerns another channel or another error.

use super::LoopServices;
use crate::{error::Error, id::Key};

pub(super) struct LoggedError {
    channel: Key,
    error: Error,
}

impl LoopServices {
    /// Records that `error` of a channel is in the log, and that the channel closes.
    #[cold]
    pub(crate) fn note_logged(&mut self, channel: Key, error: &Error) {
        self.logged = Some(LoggedError { channel, error: error.clone() });
    }

    /// Forgets the entry: a callback has panicked, maybe with the same words.
    #[cold]
    pub(crate) fn forget_logged(&mut self) {
        self.logged = None;
    }

    /// Returns whether `error` of a channel is in the log already.
    #[cold]
    pub(crate) fn is_logged(&self, channel: Key, error: &Error) -> bool {
        let Some(logged) = self.logged.as_ref().filter(|logged| logged.channel == channel) else {
            return false;
        };
        match (&logged.error, error) {
            (Error::Panicked(text), Error::Panicked(other)) => text == other,
            (
                Error::Full { resource, limit },
                Error::Full { resource: other_resource, limit: other_limit },
            ) => resource == other_resource && limit == other_limit,
            _ => false,
        }
    }
}
