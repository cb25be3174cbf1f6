//! Counts the steps of searches: months and transitions that are visited.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Adds a step of this thread.
pub(crate) fn add() {
    STEPS.set(STEPS.get() + 1);
}

/// Runs `f` and returns its steps.
pub(super) fn steps<T>(f: impl FnOnce() -> T) -> (T, u64) {
    let before = STEPS.get();
    let result = f();
    (result, STEPS.get() - before)
}
