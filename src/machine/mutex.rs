//! `Mutex`: a lock that ignores poisoning. In a simulation it is a race point.

#[cfg(feature = "simulation")]
use super::simulated::{self, HeldLock};
use super::system_mutex::SystemMutex;
use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync,
};
#[cfg(feature = "simulation")]
use std::{panic::Location, thread, time::Duration};

/// The longest wait for a lock in a simulation, in real time.
#[cfg(feature = "simulation")]
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A [`SystemMutex`] for everything but the simulation itself and the log. A simulation may run
/// another thread before the lock is taken.
#[derive(Default)]
pub(crate) struct Mutex<T>(SystemMutex<T>);

/// The lock of a [`Mutex`], until this is dropped.
pub(crate) struct MutexGuard<'a, T> {
    value: sync::MutexGuard<'a, T>,
    /// Dropped after the lock.
    #[cfg(feature = "simulation")]
    _held: HeldLock,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(SystemMutex::new(value))
    }

    /// Takes the lock. In a simulation, another thread may run first.
    ///
    /// # Panics
    /// In a simulation, if the lock is not released within [`LONGEST_WAIT`].
    #[inline]
    #[cfg_attr(feature = "simulation", track_caller)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(feature = "simulation")]
        if simulated::exists() {
            return self.lock_in_simulation();
        }
        MutexGuard::new(self.0.lock())
    }

    /// Only one thread of a simulation runs at a time, so a lock that is not released belongs to
    /// the calling thread itself, or to one that waits for something else.
    #[cfg(feature = "simulation")]
    #[cold]
    #[track_caller]
    fn lock_in_simulation(&self) -> MutexGuard<'_, T> {
        simulated::race_point_at_lock();
        if let Some(guard) = self.0.try_lock() {
            return MutexGuard::new(guard);
        }
        let machine = simulated::current();
        // The holder does not run while the thread of the test waits either.
        if thread::panicking() || machine.is_none() && !simulated::runs_simulation() {
            return MutexGuard::new(self.0.lock());
        }
        for _ in 0..LONGEST_WAIT.as_millis() {
            if let Some(guard) = self.0.try_lock() {
                return MutexGuard::new(guard);
            }
            #[allow(clippy::disallowed_methods, reason = "a thread outside of the simulation has the lock")]
            thread::sleep(Duration::from_millis(1));
        }
        let deadlock = format!(
            "a deadlock at {}: the lock is held by the same thread, or by one that waits",
            Location::caller()
        );
        if let Some(machine) = machine {
            machine.lock().violate(|| deadlock.clone());
        }
        panic!("{deadlock}");
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<'a, T> MutexGuard<'a, T> {
    #[inline]
    pub(super) fn new(value: sync::MutexGuard<'a, T>) -> Self {
        MutexGuard {
            value,
            #[cfg(feature = "simulation")]
            _held: HeldLock::new(),
        }
    }

    /// Returns the guard of the standard library, for a wait that releases the lock.
    pub(super) fn into_inner(self) -> sync::MutexGuard<'a, T> {
        self.value
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
