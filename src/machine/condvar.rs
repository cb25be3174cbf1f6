//! A condition variable whose waits a simulated machine can schedule.

use std::{
    sync::{Condvar as StdCondvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A condition variable. Waits take the mutex, because a wait in a simulation releases and locks it
/// itself.
#[derive(Default)]
pub(crate) struct Condvar(StdCondvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar(StdCondvar::new())
    }

    pub(crate) fn notify_one(&self) {
        // The simulation wakes all waiters of the condition. All callers check it again.
        #[cfg(feature = "simulation")]
        self.notify_simulated();
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        #[cfg(feature = "simulation")]
        self.notify_simulated();
        self.0.notify_all();
    }

    /// Waits for a notification, at most for `timeout` if there is one. Returns whether the timeout
    /// has passed.
    #[allow(clippy::disallowed_methods, reason = "the calling thread waits, not a loop")]
    pub(crate) fn wait<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, T>, bool) {
        #[cfg(feature = "simulation")]
        if super::simulated::is_thread() {
            drop(guard);
            let timed_out = super::simulated::block(self.key(), timeout);
            return (mutex.lock().unwrap_or_else(PoisonError::into_inner), timed_out);
        }
        let _ = mutex;
        match timeout {
            None => (self.0.wait(guard).unwrap_or_else(PoisonError::into_inner), false),
            Some(timeout) => {
                let waited = self.0.wait_timeout(guard, timeout);
                let (guard, time) = waited.unwrap_or_else(PoisonError::into_inner);
                (guard, time.timed_out())
            }
        }
    }

    #[cfg(feature = "simulation")]
    fn notify_simulated(&self) {
        super::simulated::notify(self.key());
    }

    /// Returns the identity of the condition. A waiter borrows it, so no two have the same.
    #[cfg(feature = "simulation")]
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
