//! Threads that wait for space in a full queue.
//!
//! A waiter registers, then checks the queue, then sleeps. The loop takes entries out, then checks
//! for registered waiters. In every order of these steps, one side sees the other (Dekker's
//! algorithm, as in `wake_up`), so waiters never sleep while there is space. A waiter holds the
//! lock from its check until it sleeps, and the loop takes the same lock before it notifies. So a
//! notification cannot fall in between. The check is itself an attempt to put the entry in, so
//! waiters for the same space enter one by one.
//!
//! All waiters are woken together, for the space freed by one task phase. Waiters that find the
//! queue full again continue to wait, in no particular order. Without waiters, the loop pays one
//! fence and one load per phase, and does not lock.
//!
//! Any thread except the loop's may wait; the loop's thread notifies. This module owns neither the
//! queue nor its limit.

use crate::machine;
use crate::sync::primitives::{AtomicUsize, Condvar, Mutex, Ordering, fence};
use std::time::Duration;

pub(super) struct SpaceWaiters {
    /// The number of threads between the start of their first check and the end of their last one.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    made: Condvar,
}

impl SpaceWaiters {
    pub(super) fn new() -> Self {
        SpaceWaiters { waiting: AtomicUsize::new(0), lock: Mutex::new(()), made: Condvar::new() }
    }

    /// Calls `attempt` immediately, after every notification, and once more after the timeout,
    /// until it returns a value.
    pub(super) fn wait<R>(&self, timeout: Duration, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        // Real time, regardless of the loop's clock, because this thread blocks.
        let deadline = machine::now().checked_add(timeout);
        let mut guard = self.lock.lock();
        // Before the first look at the queue; pairs with the fence in `announce`.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut time_is_up = false;
        let answer = loop {
            let answer = attempt();
            if answer.is_some() || time_is_up {
                break answer;
            }
            let left = deadline.map(|at| at.saturating_duration_since(machine::now()));
            (guard, time_is_up) = self.made.wait(&self.lock, guard, left);
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Wakes waiters, if there are any. Called after entries were taken out.
    #[inline]
    pub(super) fn announce(&self) {
        // After the entries were taken; pairs with the fence in `wait`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_all();
        }
    }

    /// Wakes all waiters for another attempt, regardless of the queue's length.
    #[cold]
    pub(super) fn wake_all(&self) {
        drop(self.lock.lock());
        self.made.notify_all();
    }
}
