//! The point of a group's shutdown at which no accepted channel is left on any loop.
//!
//! Outgoing channels are notified after it, because the handlers of accepted channels may still
//! need them for a reply in flight.
//!
//! Invariants: every loop of the group has one share, also if it is shutting down already. It is
//! released once: when the accepted channels of the loop have ended, or with the share, however the
//! loop ends. The last release wakes all loops. Any thread drops a share; the loop's thread
//! releases it.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

/// A loop that can be made to look at its shutdown, from any thread.
pub(crate) trait RemindOfShutdown: Send + Sync {
    /// Makes the loop look at its shutdown.
    fn remind_of_shutdown(&self);
}

/// The accepted channels of one loop, among those of its group.
pub(crate) struct AcceptedShare {
    drain: Arc<AcceptedDrain>,
    released: bool,
}

struct AcceptedDrain {
    /// Loops that still have accepted channels.
    loops_left: AtomicUsize,
    loops: Box<[Weak<dyn RemindOfShutdown>]>,
}

impl AcceptedShare {
    /// Returns a share for each of the loops, which shut down together.
    pub(crate) fn of<L: RemindOfShutdown + 'static>(loops: &[&Arc<L>]) -> Vec<AcceptedShare> {
        let downgrade = |shared: &&Arc<L>| {
            let weak: Weak<L> = Arc::downgrade(shared);
            weak as Weak<dyn RemindOfShutdown>
        };
        let drain = Arc::new(AcceptedDrain {
            loops_left: AtomicUsize::new(loops.len()),
            loops: loops.iter().map(downgrade).collect(),
        });
        loops.iter().map(|_| AcceptedShare { drain: drain.clone(), released: false }).collect()
    }

    /// Records that this loop has no accepted channels any more.
    pub(in crate::event_loop) fn release(&mut self) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        // The loop that sees zero sees everything that the others did before.
        if self.drain.loops_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.drain.loops.iter().filter_map(Weak::upgrade).for_each(|shared| shared.remind_of_shutdown());
        }
    }

    /// Returns whether no loop has accepted channels any more.
    pub(in crate::event_loop) fn is_over(&self) -> bool {
        self.drain.loops_left.load(Ordering::Acquire) == 0
    }
}

impl Drop for AcceptedShare {
    fn drop(&mut self) {
        self.release();
    }
}
