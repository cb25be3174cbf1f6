//! Access to the heap of the loop that the calling thread runs.
//!
//! Invariant: a thread finds a heap here only while it runs that heap's loop. Owns nothing: the
//! entry is removed when the loop ends.

use crate::{channel::DueQueue, sync::loop_id};
use std::cell::RefCell;

thread_local! {
    static QUEUE: RefCell<Option<(u32, DueQueue)>> = const { RefCell::new(None) };
}

/// A guard that makes `queue` the heap of this thread's loop, until it is dropped.
pub(in crate::event_loop) struct LocalQueue(Option<(u32, DueQueue)>);

pub(in crate::event_loop) fn enter(event_loop: u32, queue: DueQueue) -> LocalQueue {
    LocalQueue(replace(Some((event_loop, queue))))
}

/// Does nothing at the end of a thread that has dropped its variables. A loop by hand may be
/// dropped then, and its tasks go through the mailbox.
fn replace(entry: Option<(u32, DueQueue)>) -> Option<(u32, DueQueue)> {
    QUEUE.try_with(|queue| queue.replace(entry)).ok().flatten()
}

impl Drop for LocalQueue {
    fn drop(&mut self) {
        drop(replace(self.0.take()));
    }
}

/// Returns the heap of `event_loop`, if the calling thread runs that loop.
pub(in crate::event_loop) fn queue_of(event_loop: u32) -> Option<DueQueue> {
    if loop_id::current() != Some(event_loop) {
        return None;
    }
    let find = |queue: &RefCell<Option<(u32, DueQueue)>>| {
        queue.borrow().as_ref().filter(|(id, _)| *id == event_loop).map(|(_, queue)| queue.clone())
    };
    QUEUE.try_with(find).ok().flatten()
}
