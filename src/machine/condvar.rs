//! A condition variable with waits that a simulated machine can schedule.

use super::mutex::{Mutex, MutexGuard};
#[cfg(feature = "simulation")]
use super::simulated;
#[cfg(feature = "simulation")]
use std::sync::MutexGuard as StdMutexGuard;
use std::{
    sync::{Condvar as StdCondvar, PoisonError},
    time::Duration,
};

/// How long the thread of a simulation waits for something outside of it, in real time.
#[cfg(feature = "simulation")]
const LONGEST_WAIT_BESIDE_SIMULATION: Duration = Duration::from_secs(30);

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
    ///
    /// A simulation ends a wait that nothing can end, also one without a timeout, and returns
    /// `true` for it. So a caller that repeats its wait has to stop then.
    #[allow(clippy::disallowed_methods, reason = "the calling thread waits, not a loop")]
    pub(crate) fn wait<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, T>, bool) {
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            drop(guard);
            let is_over = simulated::wait(&machine, self.condition(), timeout);
            return (mutex.lock(), is_over);
        }
        let _ = mutex;
        let guard = guard.into_inner();
        let (guard, is_over) = match timeout {
            #[cfg(feature = "simulation")]
            None if simulated::runs_simulation() => (self.wait_beside_simulation(guard), false),
            None => (self.0.wait(guard).unwrap_or_else(PoisonError::into_inner), false),
            Some(timeout) => {
                let waited = self.0.wait_timeout(guard, timeout);
                let (guard, time) = waited.unwrap_or_else(PoisonError::into_inner);
                (guard, time.timed_out())
            }
        };
        (MutexGuard::new(guard), is_over)
    }

    /// Waits on the thread of a simulation, outside of its programs. Only threads of the operating
    /// system can end the wait.
    #[cfg(feature = "simulation")]
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "the simulation stands still during the wait")]
    fn wait_beside_simulation<'a, T>(&self, guard: StdMutexGuard<'a, T>) -> StdMutexGuard<'a, T> {
        let waited = self.0.wait_timeout(guard, LONGEST_WAIT_BESIDE_SIMULATION);
        let (guard, time) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(
            !time.timed_out(),
            "a thread that runs a simulation has waited for {LONGEST_WAIT_BESIDE_SIMULATION:?}; programs of \
             the simulation cannot end the wait, because they run in `run_for` and `run_until` only"
        );
        guard
    }

    #[cfg(feature = "simulation")]
    fn notify_simulated(&self) {
        simulated::notify(self.condition());
    }

    /// Returns the identity of the condition. A waiter borrows it, so no two have the same.
    #[cfg(feature = "simulation")]
    fn condition(&self) -> simulated::Condition {
        simulated::Condition(std::ptr::from_ref(self).addr())
    }
}
