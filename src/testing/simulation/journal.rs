//! What programs of a simulation record for its checks.

use crate::machine::{SystemMutex, simulated::HeldLock};
use std::sync::Arc;

/// A list that programs of a simulation write and its checks read. Clones share the list.
///
/// A program may use it while it holds a lock of its own: no other thread runs in the meantime.
#[derive(Debug)]
pub struct Journal<T>(Arc<SystemMutex<Vec<T>>>);

impl<T> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Journal(self.0.clone())
    }
}

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Journal(Arc::default())
    }
}

impl<T> Journal<T> {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry.
    pub fn push(&self, entry: T) {
        self.0.lock().push(entry);
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `look` with all entries.
    pub fn with<R>(&self, look: impl FnOnce(&[T]) -> R) -> R {
        let entries = self.0.lock();
        let _held = HeldLock::new();
        look(&entries)
    }
}
