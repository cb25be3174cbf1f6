//! Callbacks that run on a loop's thread when the loop has ended.
//!
//! Invariants: an accepted hook runs once, on the loop's thread, after everything else that the
//! loop does. Hooks run in the order of addition. A hook that another hook adds runs after the
//! waiting ones. Any thread may add hooks.

use crate::{
    error::{Error, Resource, Result, caught, panic_message},
    event_loop::task::Task,
    machine::Mutex,
    sync::Activity,
};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The maximum number of hooks over the life of a loop. It also ends a chain of hooks that add
/// hooks.
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
    /// Adds a hook that runs when the loop has ended.
    ///
    /// # Errors
    /// [`Error::ShutDown`] if the hooks have already run, or [`Error::Full`] if [`MAX_HOOKS`] were
    /// added.
    pub(crate) fn add(&self, hook: Task) -> Result {
        let mut state = self.0.lock();
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

    /// Runs all hooks until none is left. Later ones are refused.
    pub(crate) fn run(&self, event_loop: &str, activity: &Activity) {
        while let Some(mut hook) = self.next() {
            let origin = hook.origin();
            let run = || catch_unwind(AssertUnwindSafe(|| hook.run()));
            if let Err(panic) = activity.in_task(origin, run) {
                let message = panic_message(panic);
                // The log may panic too, and the loop must end.
                caught(|| {
                    log::error!("{event_loop}: the shutdown hook added at {origin} panicked: {message}");
                });
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.0.lock();
        let next = state.waiting.pop_front();
        state.over = next.is_none();
        next
    }
}
