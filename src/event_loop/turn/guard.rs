//! Panics that neither a channel nor a task has caught, and their consequences.
//!
//! Such a panic comes from the loop's own code, from the program's logger, or from a `Display` or
//! `Drop` of the program.
//!
//! Invariant: the panic costs at most the source that was being handled, and never the loop. A
//! listener is tried again after a second. Runs on the loop's thread.

use super::Turn;
use crate::{
    Error,
    error::{caught, drop_guarded},
    id::Key,
    log_throttle::{PANICS, log_throttled},
};
use log::Level;

impl Turn {
    /// Has `handle` go on, piece by piece, until it comes to its end: it is called again after a panic, and must not
    /// come to the same piece twice. A panic that neither a channel nor a task has caught (in the program's log, or in
    /// the `Display` or the `Drop` of something of its own) costs the source that was `current`, if any, not the loop.
    ///
    /// What is not a piece of its own, like reading the clock, has no place in it: if that panicked each time, there
    /// would be no end.
    pub(in crate::event_loop) fn guarded(&mut self, mut handle: impl FnMut(&mut Self, &mut Option<Key>)) {
        let mut current = None;
        while let Some(message) = caught(|| handle(self, &mut current)) {
            self.panicked(current.take(), message);
        }
    }

    /// As [`Turn::guarded`], for a single piece.
    pub(in crate::event_loop) fn guarded_once(
        &mut self,
        current: Option<Key>,
        handle: impl FnOnce(&mut Self),
    ) {
        if let Some(message) = caught(|| handle(self)) {
            self.panicked(current, message);
        }
    }

    #[cold]
    fn panicked(&mut self, key: Option<Key>, message: String) {
        self.shared.metrics.io_panics.add(1);
        let retries = key.and_then(|key| self.with_source(key, |source, ctx| source.retry_after_panic(ctx)));
        let what = match retries {
            Some(true) => "accepting panicked, which is tried again later",
            Some(false) => "handling a socket panicked, which is closed",
            None => "something panicked that is not a socket's",
        };
        // What panicked may have been the log itself.
        let name = &self.shared.name;
        caught(|| log_throttled!(self.io.services, PANICS, Level::Error, "{name}: {what}: {message}"));
        let Some(key) = key.filter(|_| retries == Some(false)) else { return };
        if caught(|| self.fail_source(key, Error::panicked(message))).is_some()
            && caught(|| self.close_silently(key)).is_some()
        {
            drop_guarded(self.sources.remove(key));
        }
    }

    fn close_silently(&mut self, key: Key) {
        self.with_source(key, |source, ctx| source.close_silently(ctx));
    }
}
