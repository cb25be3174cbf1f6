//! Callbacks that run on a loop's thread when the loop has ended.
//!
//! Invariants: an accepted hook runs once, on the loop's thread, after everything else that the
//! loop does. Hooks run in the order in which they were added. A hook that another hook adds runs
//! after the waiting ones. Any thread adds.

use crate::{Error, Resource, Result, error::panic_message, event_loop::task::Task, sync::Activity};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Hooks that one loop takes in its life: so even hooks that add hooks come to an end.
const MAX_HOOKS: usize = 1024;

#[derive(Default)]
pub(crate) struct ShutdownHooks(Mutex<HookList>);

#[derive(Default)]
struct HookList {
    waiting: VecDeque<Task>,
    taken: usize,
    over: bool,
}

impl ShutdownHooks {
    fn lock(&self) -> MutexGuard<'_, HookList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a hook for the end.
    ///
    /// # Errors
    /// If the end is over, or [`MAX_HOOKS`] were taken.
    pub(crate) fn add(&self, hook: Task) -> Result {
        let mut state = self.lock();
        if state.over {
            return Err(Error::ShutDown);
        }
        if state.taken == MAX_HOOKS {
            return Err(Error::Full { resource: Resource::ShutdownHooks, limit: MAX_HOOKS });
        }
        state.taken += 1;
        state.waiting.push_back(hook);
        Ok(())
    }

    /// Runs them until none is left, and takes no more.
    pub(crate) fn run(&self, event_loop: &str, activity: &Activity) {
        while let Some(mut hook) = self.next() {
            let origin = hook.origin();
            let run = || catch_unwind(AssertUnwindSafe(|| hook.run()));
            if let Err(panic) = activity.in_task(origin, run) {
                let message = panic_message(panic);
                log::error!("{event_loop}: the shutdown hook given at {origin} panicked: {message}");
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        let next = state.waiting.pop_front();
        state.over = next.is_none();
        next
    }
}
