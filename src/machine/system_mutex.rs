//! `SystemMutex`: a lock that ignores poisoning.

#![allow(clippy::disallowed_types, reason = "the one place that names `std::sync::Mutex`")]

#[cfg(feature = "simulation")]
use std::sync::TryLockError;
use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A `std::sync::Mutex` that a panic does not poison. The values behind the locks of the crate are
/// consistent at every moment at which a panic is possible, so later callers can use them.
#[derive(Default)]
pub(crate) struct SystemMutex<T>(Mutex<T>);

impl<T> SystemMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        SystemMutex(Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "simulation")]
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for SystemMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
