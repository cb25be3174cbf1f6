//! An ordered list of events, shared by handlers, callbacks, tasks and the test.

use super::wait::PATIENCE;
use std::{
    fmt::Debug,
    ops::Deref,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// An append-only list that any thread may extend and wait for.
pub(crate) struct Journal<T>(Arc<(Mutex<Vec<T>>, Condvar)>);

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Journal(Arc::default())
    }
}

impl<T> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Journal(self.0.clone())
    }
}

impl<T> Journal<T> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, entry: T) {
        self.lock().push(entry);
        self.0.1.notify_all();
    }

    /// Removes and returns all entries.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl<T: Clone> Journal<T> {
    /// Returns the current entries.
    pub(crate) fn all(&self) -> Vec<T> {
        self.lock().clone()
    }
}

impl<T: Debug> Journal<T> {
    /// Blocks until there are at least `len` entries.
    #[track_caller]
    pub(crate) fn wait_len(&self, len: usize) {
        self.wait_until(&format!("{len} entries"), |entries| entries.len() >= len);
    }

    /// Blocks until the entries satisfy `is_met`.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, is_met: impl Fn(&[T]) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut entries = self.lock();
        while !is_met(&entries) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let entries = format!("{entries:#?}");
                panic!("timed out waiting for {what:?}; entries: {entries}");
            }
            entries = self.0.1.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A journal of lines.
#[derive(Clone, Default)]
pub(crate) struct Log(Journal<String>);

impl Deref for Log {
    type Target = Journal<String>;

    fn deref(&self) -> &Journal<String> {
        &self.0
    }
}

impl Log {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn push(&self, entry: impl Into<String>) {
        self.0.push(entry.into());
    }

    pub(crate) fn count(&self, entry: &str) -> usize {
        self.lock().iter().filter(|e| *e == entry).count()
    }

    /// Blocks until the log contains `entry`.
    #[track_caller]
    pub(crate) fn wait_for(&self, entry: &str) {
        self.wait_until(entry, |log| log.iter().any(|e| e == entry));
    }
}
