//! The atomics and locks used by this module: those of the standard library, or those of loom in
//! the models of `loom_tests`.
//!
//! Invariants: loom is used only in unit tests built with `--cfg netwheel_loom`. Every file of this
//! module imports these names from here, so that the models run the code that ships.

#[cfg(not(all(test, netwheel_loom)))]
mod real {
    pub(in crate::sync) use crate::machine::{Condvar, Mutex, MutexGuard};
    pub(in crate::sync) use std::{
        sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
        thread_local as per_thread,
    };
}

#[cfg(not(all(test, netwheel_loom)))]
pub(super) use real::*;

#[cfg(all(test, netwheel_loom))]
mod modelled {
    pub(in crate::sync) use loom::sync::{
        MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    };
    use std::{sync::PoisonError, time::Duration};

    /// loom's `thread_local!` does not support `const`.
    macro_rules! per_thread {
        ($(static $name:ident: $type:ty = const $initial:block;)+) => {
            $(loom::thread_local! { static $name: $type = $initial; })+
        };
    }

    pub(in crate::sync) use per_thread;

    #[derive(Debug, Default)]
    pub(in crate::sync) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in crate::sync) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(in crate::sync) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A condition variable with timeouts, which loom's does not support. A zero timeout expires at
    /// once, and the scheduler can place that at any point. Other timeouts never expire.
    #[derive(Default)]
    pub(in crate::sync) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(in crate::sync) fn new() -> Self {
            Self::default()
        }

        pub(in crate::sync) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(in crate::sync) fn wait<'a, T>(
            &self,
            _mutex: &'a Mutex<T>,
            guard: MutexGuard<'a, T>,
            timeout: Option<Duration>,
        ) -> (MutexGuard<'a, T>, bool) {
            if timeout.is_some_and(|timeout| timeout.is_zero()) {
                return (guard, true);
            }
            (self.0.wait(guard).unwrap_or_else(PoisonError::into_inner), false)
        }
    }
}

#[cfg(all(test, netwheel_loom))]
pub(super) use modelled::*;
