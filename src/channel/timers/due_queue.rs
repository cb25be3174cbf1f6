//! The loop's heap, shared by the loop, its channels and the handles that cancel.
//!
//! All clones are on the loop's thread (`Rc`). A handle that is used on that thread finds the heap
//! through `event_loop::tasks::local`.
//!
//! Invariants: no borrow outlives a call, and code of the program neither runs nor is dropped
//! during one. So calls may come from within callbacks.

use super::due::Due;
use crate::timer::{self, QueueKey, ScheduledQueue};
use std::{cell::RefCell, rc::Rc};

/// A shared [`ScheduledQueue`] of a loop's timers.
#[derive(Clone)]
pub(crate) struct DueQueue(Rc<RefCell<ScheduledQueue<Due>>>);

impl DueQueue {
    pub(crate) fn new() -> Self {
        DueQueue(Rc::new(RefCell::new(ScheduledQueue::new())))
    }

    pub(crate) fn insert(&self, deadline: u64, due: Due) -> QueueKey {
        self.0.borrow_mut().insert(deadline, due)
    }

    pub(crate) fn reinsert(&self, due: timer::DueEntry<Due>, deadline: u64) -> QueueKey {
        self.0.borrow_mut().reinsert(due, deadline)
    }

    /// Removes an entry, which the caller drops.
    #[must_use]
    pub(crate) fn cancel(&self, key: QueueKey) -> Option<Due> {
        self.0.borrow_mut().cancel(key)
    }

    /// Removes and returns the first entry that is due at `now`.
    pub(crate) fn pop_due(&self, now: u64) -> Option<timer::DueEntry<Due>> {
        self.0.borrow_mut().pop_due(now)
    }

    /// Like [`DueQueue::pop_due`], for entries that were inserted before `mark`.
    pub(crate) fn pop_due_before(&self, now: u64, mark: u64) -> Option<timer::DueEntry<Due>> {
        self.0.borrow_mut().pop_due_before(now, mark)
    }

    /// Returns a mark that separates present entries from later ones.
    pub(crate) fn mark(&self) -> u64 {
        self.0.borrow().mark()
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.0.borrow().next_deadline()
    }

    /// Returns whether `wanted` is true for an entry.
    #[cfg(feature = "simulation")]
    pub(crate) fn any(&self, wanted: impl Fn(&Due) -> bool) -> bool {
        self.0.borrow().values().any(wanted)
    }

    /// Returns the deadline of an entry.
    pub(crate) fn deadline(&self, key: QueueKey) -> Option<u64> {
        self.0.borrow().deadline(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Removes the `wanted` entries, in the order of their deadlines. The others keep their keys.
    /// `wanted` must not use the queue.
    pub(crate) fn take_if(&self, wanted: impl FnMut(&Due) -> bool) -> Vec<Due> {
        self.0.borrow_mut().take_if(wanted)
    }

    /// Removes all entries, in the order of their deadlines.
    pub(crate) fn clear(&self) -> Vec<Due> {
        self.0.borrow_mut().clear()
    }
}
