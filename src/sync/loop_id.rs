//! Which event loop the calling thread is.
//!
//! Always holds: a loop's number is unique in the process, and set on its own thread while that thread runs the
//! loop. A loop that is driven by hand belongs to one thread also while that does not run it.

use super::primitives::per_thread;
use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    sync::atomic::{AtomicU32, Ordering},
};

per_thread! {
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
    static OWNED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A number for a new loop.
pub(crate) fn next() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The loop that this thread runs.
#[inline]
pub(crate) fn current() -> Option<u32> {
    CURRENT.with(Cell::get)
}

/// Makes this thread a loop's, until dropped; restores what it was before.
pub(crate) struct Entered(Option<u32>);

pub(crate) fn enter(id: u32) -> Entered {
    Entered(CURRENT.with(|current| current.replace(Some(id))))
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.0));
    }
}

/// That no other thread than this one can run a loop, until dropped; it cannot leave the thread.
pub(crate) struct Owned {
    id: u32,
    stays: PhantomData<*const ()>,
}

pub(crate) fn own(id: u32) -> Owned {
    OWNED.with(|owned| owned.borrow_mut().push(id));
    Owned { id, stays: PhantomData }
}

/// Whether nobody but this thread can run the loop.
pub(crate) fn is_own(id: u32) -> bool {
    current() == Some(id) || OWNED.try_with(|owned| owned.borrow().contains(&id)).unwrap_or(false)
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A thread that is ending may have dropped the list before.
        let _ = OWNED.try_with(|owned| owned.borrow_mut().retain(|id| *id != self.id));
    }
}
