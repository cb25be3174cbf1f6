//! Which event loop the calling thread is.
//!
//! Always holds: a loop's number is unique in the process, and set on its own thread while that
//! thread runs the loop. A loop that is driven by hand belongs to one thread also while that does
//! not run it.
//!
//! Numbers are not relative to the group: a handle of any group may be used on any loop, and
//! compares the number of its loop with that of the calling thread. With one number for two loops
//! it would take the wrong thread for its own. A simulation has all of its loops on one thread, so
//! it may number them anew ([`LoopIds::of_simulation`]), which makes the ids of channels the same
//! in each run.

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

/// The numbers of all loops that no simulation has numbered.
static OF_PROCESS: LoopIds = LoopIds(AtomicU32::new(0));

/// The first number of a simulation. No process has made that many loops before.
const OF_SIMULATION: u32 = 1 << 31;

/// Numbers loops, in the order in which they are made.
#[derive(Debug)]
pub(crate) struct LoopIds(AtomicU32);

impl LoopIds {
    /// Returns numbers that begin anew, for loops whose handles stay on the calling thread.
    #[allow(dead_code, reason = "for drivers other than the kernel")]
    pub(crate) fn of_simulation() -> Self {
        LoopIds(AtomicU32::new(OF_SIMULATION))
    }

    /// Returns the number of a new loop.
    pub(crate) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns a number that no other loop of the process has.
pub(crate) fn next() -> u32 {
    OF_PROCESS.next()
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

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use crate::{EventLoopGroup, testing::ManualClock};
    use std::sync::Arc;

    #[test]
    fn a_simulation_numbers_its_loops_anew_and_apart_from_the_process() {
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
