//! A loop's queue of tasks: many threads put in, the loop takes out, in order.
//!
//! Always holds: what was put in by one thread comes out in that thread's order; a closed mailbox refuses and
//! hands back; at most `limit` entries wait (several threads that pass the limit at the same instant may exceed
//! it by their number). The queue is crossbeam's unbounded list: no memory is taken for room that is not used.

use crate::{Error, error::Refused};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The submitting end; shared by all handles of a loop.
pub(crate) struct Mailbox<T> {
    sender: Sender<T>,
    limit: usize,
    refused: AtomicUsize,
}

/// The loop's end.
pub(crate) struct Inbox<T> {
    receiver: Receiver<T>,
}

/// What is bounded, as the error says it.
pub(crate) const PENDING_TASKS: &str = "pending tasks";

pub(crate) fn mailbox<T>(limit: usize) -> (Mailbox<T>, Inbox<T>) {
    let (sender, receiver) = unbounded();
    (Mailbox { sender, limit, refused: AtomicUsize::new(0) }, Inbox { receiver })
}

impl<T> Mailbox<T> {
    /// Puts one entry in.
    ///
    /// # Errors
    /// Hands it back if the queue is full, or its loop has ended.
    pub(crate) fn put(&self, entry: T) -> Result<(), Refused<T>> {
        if self.sender.len() >= self.limit {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let reason = Error::Full { what: PENDING_TASKS, limit: self.limit };
            return Err(Refused { value: entry, reason });
        }
        self.put_always(entry)
    }

    /// Puts one entry in even if the queue is full: for what must not be lost, like a cancel or a shutdown.
    pub(crate) fn put_always(&self, entry: T) -> Result<(), Refused<T>> {
        self.sender.send(entry).map_err(|e| Refused { value: e.0, reason: Error::ShutDown })
    }

    /// Whether so much waits that a sleeping loop should not leave it for later, lest there be no room for what is
    /// urgent.
    pub(crate) fn is_crowded(&self) -> bool {
        self.sender.len() >= self.limit / 2
    }

    /// Entries that wait.
    pub(crate) fn len(&self) -> usize {
        self.sender.len()
    }

    /// Entries refused because the queue was full.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

impl<T> Inbox<T> {
    /// The oldest entry.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }
}
