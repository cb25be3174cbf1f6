//! The event loop that the calling thread runs.
//!
//! Invariants: a loop's number is unique in the process. It is set on the loop's own thread while
//! that thread runs the loop. A loop that is driven by hand belongs to one thread, even between its
//! turns.
//!
//! Numbers are not relative to the group. A handle of any group may be used on any loop, and
//! compares the number of its loop with that of the calling thread. If two loops had the same
//! number, a handle would mistake another loop's thread for its own. All loops of a simulation run
//! on one thread, so a simulation may restart the numbers ([`LoopIds::of_simulation`]). This makes
//! the ids of channels reproducible.

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

/// The numbers of all loops that are not part of a simulation.
static OF_PROCESS: LoopIds = LoopIds(AtomicU32::new(0));

/// The first number of a simulation. Processes never create that many other loops.
const OF_SIMULATION: u32 = 1 << 31;

/// A source of loop numbers, in the order of creation.
#[derive(Debug)]
pub(crate) struct LoopIds(AtomicU32);

impl LoopIds {
    /// Returns a sequence that restarts, for loops whose handles stay on the calling thread.
    #[allow(dead_code, reason = "for drivers other than the kernel")]
    pub(crate) fn of_simulation() -> Self {
        LoopIds(AtomicU32::new(OF_SIMULATION))
    }

    /// Returns the number of a new loop.
    pub(crate) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns a number that is unique in the process.
pub(crate) fn next() -> u32 {
    OF_PROCESS.next()
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

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use crate::{EventLoopGroup, testing::ManualClock};
    use std::sync::Arc;

    #[test]
    fn a_simulation_restarts_its_loop_numbers_apart_from_the_process() {
        let numbers = || {
            let ids = Arc::new(LoopIds::of_simulation());
            let builder = EventLoopGroup::builder().clock(ManualClock::new()).loop_ids(&ids);
            let loops = [builder.clone().build_manual().unwrap(), builder.build_manual().unwrap()];
            loops.map(|by_hand| by_hand.event_loop().shared.id)
        };
        assert_eq!(numbers(), [OF_SIMULATION, OF_SIMULATION + 1]);
        assert_eq!(numbers(), numbers());
        let of_process = EventLoopGroup::builder().build_manual().unwrap().event_loop().shared.id;
        assert!(of_process < OF_SIMULATION && next() > of_process);
    }
}
