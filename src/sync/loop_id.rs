//! The event loop that the calling thread runs.
//!
//! Invariants: a loop's number is unique in the process. It is set on the loop's own thread while
//! that thread runs the loop. A loop that is driven by hand belongs to one thread, even between its
//! turns.
//!
//! Numbers are not relative to the group. A handle of any group may be used on any loop, and
//! compares the number of its loop with that of the calling thread. If two loops had the same
//! number, a handle would mistake another loop's thread for its own. A simulated machine counts its
//! loops from a number that the process never reaches, so the ids of its channels are the same in
//! each run.

use super::primitives::per_thread;
use crate::machine;
use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    sync::atomic::{AtomicU32, Ordering},
};

per_thread! {
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
    static OWNED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// The number of the next loop.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns the number of a new loop, which is unique in the process, or in its simulation.
pub(crate) fn next() -> u32 {
    machine::next_loop_id().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the number of the loop that this thread is running.
#[inline]
pub(crate) fn current() -> Option<u32> {
    CURRENT.with(Cell::get)
}

/// A guard that marks this thread as running a loop. Restores the previous state when dropped.
pub(crate) struct Entered(Option<u32>);

pub(crate) fn enter(id: u32) -> Entered {
    Entered(CURRENT.with(|current| current.replace(Some(id))))
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.0));
    }
}

/// A guard for a loop that only this thread can run. It is not `Send`.
pub(crate) struct Owned {
    id: u32,
    stays: PhantomData<*const ()>,
}

pub(crate) fn own(id: u32) -> Owned {
    OWNED.with(|owned| owned.borrow_mut().push(id));
    Owned { id, stays: PhantomData }
}

/// Returns whether this thread is the only one that can run the loop.
pub(crate) fn is_own(id: u32) -> bool {
    current() == Some(id) || OWNED.try_with(|owned| owned.borrow().contains(&id)).unwrap_or(false)
}

impl Drop for Owned {
    fn drop(&mut self) {
        // The list may already be dropped if the thread is exiting.
        let _ = OWNED.try_with(|owned| owned.borrow_mut().retain(|id| *id != self.id));
    }
}
