//! The counters of a loop.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter, a gauge, or a time in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Called only on the loop's thread.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds `n`. Called from any thread.
    #[inline]
    pub(crate) fn add_shared(&self, n: u64) {
        // Nearly every turn adds zero to such a counter, and the addition is a locked instruction.
        if n > 0 {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Sets a gauge. Called only on the loop's thread.
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A placeholder for a number that another module counts. [`EventLoop::metrics`] fills it in.
///
/// [`EventLoop::metrics`]: crate::EventLoop::metrics
#[derive(Debug, Default)]
pub(crate) struct External;
