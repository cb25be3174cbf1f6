//! Which event loop the calling thread is.
//!
//! Always holds: a loop's number is unique in the process, and set on its own thread while that thread runs the
//! loop.

use super::primitives::per_thread;
use std::{
    cell::Cell,
    sync::atomic::{AtomicU32, Ordering},
};

per_thread! {
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
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
