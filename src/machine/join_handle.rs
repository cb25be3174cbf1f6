//! `JoinHandle`: the result of a thread.

#[cfg(feature = "simulation")]
use super::{condvar::Condvar, mutex::Mutex};
use std::thread;
#[cfg(feature = "simulation")]
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
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
    /// Returns the body of a thread whose end this is. A thread that is killed has an end as well,
    /// whether it has run or not.
    pub(super) fn of(self: Arc<Self>, body: impl FnOnce() -> T) -> impl FnOnce() {
        let pending = PendingEnd(self);
        move || {
            let result = catch_unwind(AssertUnwindSafe(body)).map_err(super::resume_killed);
            pending.0.set(result);
        }
    }

    fn set(&self, result: thread::Result<T>) {
        self.result.lock().get_or_insert(result);
        self.changed.notify_all();
    }

    fn wait(&self) -> thread::Result<T> {
        let mut result = self.result.lock();
        let mut is_over = false;
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            if is_over {
                return Err(Box::new("the simulation has ended the wait for a thread"));
            }
            (result, is_over) = self.changed.wait(&self.result, result, None);
        }
    }
}

/// The end of a thread that has not ended.
#[cfg(feature = "simulation")]
struct PendingEnd<T>(Arc<Ending<T>>);

#[cfg(feature = "simulation")]
impl<T> Drop for PendingEnd<T> {
    fn drop(&mut self) {
        self.0.set(Err(Box::new("the process of the thread was killed")));
    }
}
