//! Panics that neither a channel nor a task has caught, and their consequences.
//!
//! Such a panic comes from the loop's own code, from the program's logger, or from a `Display` or
//! `Drop` of the program.
//!
//! Invariant: the panic ends at most the source that was being handled, and never the loop. A
//! listener is retried after a second. Runs on the loop's thread.

use super::Turn;
use crate::{
    error::{Error, caught, drop_guarded},
    id::Key,
    log_throttle::{PANICS, log_throttled},
};
use log::Level;

impl Turn {
    /// Calls `handle` until it returns without a panic. `handle` works through a sequence of items.
    /// After a panic it is called again, and must continue with the next item. A panic that neither
    /// a channel nor a task has caught closes the `current` source, if any, and never ends the
    /// loop. Such a panic comes from the program's logger, or from a `Display` or `Drop` of the
    /// program.
    ///
    /// `handle` must not contain code that does not belong to an item, such as reading the clock.
    /// If that panicked each time, this would never return.
    pub(in crate::event_loop) fn guarded(&mut self, mut handle: impl FnMut(&mut Self, &mut Option<Key>)) {
        let mut current = None;
        while let Some(message) = caught(|| handle(self, &mut current)) {
            self.panicked(current.take(), message);
        }
    }

    /// Like [`Turn::guarded`], for a single item.
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
            Some(true) => "accepting panicked, and is retried later",
            Some(false) => "handling a socket panicked, and the socket is closed",
            None => "code that does not belong to a socket panicked",
        };
        // The panic may have come from the log itself.
        let name = &self.shared.name;
        caught(|| log_throttled!(self.io.services, PANICS, Level::Error, "{name}: {what}: {message}"));
        let Some(key) = key.filter(|_| retries == Some(false)) else { return };
        let error = Error::panicked(message);
        self.io.services.note_logged(key, &error);
        if caught(|| self.fail_source(key, error)).is_some() && caught(|| self.close_silently(key)).is_some()
        {
            self.note_end_of(key);
            self.note_age_ended(key);
            drop_guarded(self.sources.remove(key));
        }
    }

    fn close_silently(&mut self, key: Key) {
        self.with_source(key, |source, ctx| source.close_silently(ctx));
    }
}
