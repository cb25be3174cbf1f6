//! Threads that wait for room in a full queue.
//!
//! A waiter registers, then looks at the queue, then sleeps; the loop takes entries out, then looks whether anybody
//! is registered. Whichever order the two run in, one of them sees the other (Dekker, as in `wake_up`), so nobody
//! sleeps beside room. From its look until it sleeps a waiter holds the lock that the loop takes before it notifies:
//! no notification falls in between. Looking is putting in: what waits for the same room comes in one by one.
//!
//! All waiters are woken together, for as much room as a phase of tasks makes; those who find it taken wait on, in
//! no order among each other. While nobody waits, the loop pays one fence and one load per phase, and takes no lock.
//!
//! Any thread but the loop's waits; the loop's thread announces. Owns neither the queue nor its limit.

use crate::sync::primitives::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence};
use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

pub(super) struct SpaceWaiters {
    /// Threads between the start of their first look and the end of their last one.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    made: Condvar,
}

impl SpaceWaiters {
    pub(super) fn new() -> Self {
        SpaceWaiters { waiting: AtomicUsize::new(0), lock: Mutex::new(()), made: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `attempt` now, whenever room was made, and one last time when the time is up: until it answers.
    #[allow(clippy::disallowed_methods, reason = "the calling thread waits, not a loop")]
    pub(super) fn wait<R>(&self, timeout: Duration, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        // Real time, whatever the loop's clock says: it is this thread that waits.
        let deadline = Instant::now().checked_add(timeout);
        let mut guard = self.lock();
        // Before the first look at the queue; pairs with the fence in `announce`.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut time_is_up = false;
        let answer = loop {
            let answer = attempt();
            if answer.is_some() || time_is_up {
                break answer;
            }
            let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let wait = self.made.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
            (guard, time_is_up) = (wait.0, wait.1.timed_out());
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Wakes those who wait, if there are any; called after entries were taken out.
    #[inline]
    pub(super) fn announce(&self) {
        // After the entries were taken; pairs with the fence in `wait`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_all();
        }
    }

    /// Has everybody look again, whatever the queue's length.
    #[cold]
    pub(super) fn wake_all(&self) {
        drop(self.lock());
        self.made.notify_all();
    }
}
