//! `JoinHandle`: the result of a thread.

#[cfg(feature = "simulation")]
use super::Condvar;
use std::thread;
#[cfg(feature = "simulation")]
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

/// Waits for the end of a thread.
pub(crate) enum JoinHandle<T> {
    System(thread::JoinHandle<T>),
    #[cfg(feature = "simulation")]
    Simulated(Arc<Ending<T>>),
}

impl<T> JoinHandle<T> {
    /// Waits for the end of the thread. `Err` has the payload of its panic.
    pub(crate) fn join(self) -> thread::Result<T> {
        match self {
            JoinHandle::System(thread) => thread.join(),
            #[cfg(feature = "simulation")]
            JoinHandle::Simulated(ending) => ending.wait(),
        }
    }
}

/// The end of a thread of a simulated machine.
#[cfg(feature = "simulation")]
pub(crate) struct Ending<T> {
    result: Mutex<Option<thread::Result<T>>>,
    changed: Condvar,
}

#[cfg(feature = "simulation")]
impl<T> Default for Ending<T> {
    fn default() -> Self {
        Ending { result: Mutex::new(None), changed: Condvar::new() }
    }
}

#[cfg(feature = "simulation")]
impl<T> Ending<T> {
    /// Calls the body of the thread, and keeps its result.
    pub(super) fn run(&self, body: impl FnOnce() -> T) {
        let result = catch_unwind(AssertUnwindSafe(body)).map_err(super::resume_killed);
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.changed.notify_all();
    }

    fn wait(&self) -> thread::Result<T> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            result = self.changed.wait(&self.result, result, None).0;
        }
    }
}
