//! The loop's heap, as the loop, its channels and cancelling handles share it.
//!
//! All clones are on the loop's thread (`Rc`). A handle that is used on that thread finds the heap
//! through `event_loop::tasks::local`.
//!
//! Invariants: no borrow outlives a call, and code of the program neither runs nor is dropped
//! during one. So calls may come from within callbacks.

use super::due::Due;
use crate::timer::{self, QueueKey, ScheduledQueue};
use std::{cell::RefCell, rc::Rc};

/// A shared [`ScheduledQueue`] of what is due in a loop.
#[derive(Clone)]
pub(crate) struct DueQueue(Rc<RefCell<ScheduledQueue<Due>>>);

impl DueQueue {
    pub(crate) fn new() -> Self {
        DueQueue(Rc::new(RefCell::new(ScheduledQueue::new())))
    }

    pub(crate) fn insert(&self, deadline: u64, due: Due) -> QueueKey {
        self.0.borrow_mut().insert(deadline, due)
    }

    pub(crate) fn reinsert(&self, due: timer::Due<Due>, deadline: u64) -> QueueKey {
        self.0.borrow_mut().reinsert(due, deadline)
    }

    /// Takes one out; the caller drops it.
    #[must_use]
    pub(crate) fn cancel(&self, key: QueueKey) -> Option<Due> {
        self.0.borrow_mut().cancel(key)
    }

    /// The first that is due at `now`.
    pub(crate) fn pop_due(&self, now: u64) -> Option<timer::Due<Due>> {
        self.0.borrow_mut().pop_due(now)
    }

    /// As [`DueQueue::pop_due`], unless it was inserted at `mark` or later.
    pub(crate) fn pop_due_before(&self, now: u64, mark: u64) -> Option<timer::Due<Due>> {
        self.0.borrow_mut().pop_due_before(now, mark)
    }

    /// Tells what is in the queue from what will be inserted from now on.
    pub(crate) fn mark(&self) -> u64 {
        self.0.borrow().mark()
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.0.borrow().next_deadline()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Takes out the entries that are `wanted`, in the order in which they would have come due; the
    /// others keep their keys. `wanted` must not touch the queue.
    pub(crate) fn take_if(&self, wanted: impl FnMut(&Due) -> bool) -> Vec<Due> {
        self.0.borrow_mut().take_if(wanted)
    }

    /// Takes out everything, in the order in which it would have come due.
    pub(crate) fn clear(&self) -> Vec<Due> {
        self.0.borrow_mut().clear()
    }
}
