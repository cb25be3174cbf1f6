//! `Mutex`: a lock that ignores poisoning.

#![allow(clippy::disallowed_types, reason = "the one place that names `std::sync::Mutex`")]

use std::{
    fmt,
    sync::{self, MutexGuard, PoisonError},
};

/// A `std::sync::Mutex` that a panic does not poison. The values behind the locks of the crate are
/// consistent at every moment at which a panic is possible, so later callers can use them.
#[derive(Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
