//! The completers that wait for one event, such as a close.
//!
//! Async code may call `closed` or `writable` again and again and drop each completion, for example
//! in a `select!` for each message. So dropped completions are removed: their number is never more
//! than that of the awaited ones, apart from a few.
//!
//! Invariant: a completer is dropped by the code that owns the lock of the list, after the unlock
//! ([`Locked`](super::Locked)). Dropping it may drop the waker of a task, and with the waker the
//! task.

use super::Completer;

/// The number of waiters from which on dropped ones are removed.
const PRUNE_FROM: usize = 16;

/// Something that a completion waits for.
pub(crate) trait Awaited {
    /// Returns whether a consumer would get a result.
    fn is_awaited(&self) -> bool;
}

impl<T> Awaited for Completer<T> {
    fn is_awaited(&self) -> bool {
        Completer::is_awaited(self)
    }
}

/// The waiters for one event.
pub(crate) struct Waiters<W = Completer> {
    waiters: Vec<W>,
    /// The number of them at which the list is pruned.
    prune_at: usize,
}

/// Abandoned waiters. They are to be dropped after the unlock.
#[must_use = "they are dropped after the unlock"]
pub(crate) struct Pruned<W>(#[allow(dead_code, reason = "they are only dropped")] Vec<W>);

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Waiters { waiters: Vec::new(), prune_at: PRUNE_FROM }
    }
}

impl<W: Awaited> Waiters<W> {
    /// Adds a waiter. Returns the abandoned waiters, if a search for them was due.
    pub(crate) fn push(&mut self, waiter: W) -> Pruned<W> {
        let mut dropped = Vec::new();
        if self.waiters.len() >= self.prune_at {
            dropped = self.waiters.extract_if(.., |waiter| !waiter.is_awaited()).collect();
            self.prune_at = PRUNE_FROM.max(self.waiters.len() * 2);
        }
        self.waiters.push(waiter);
        Pruned(dropped)
    }

    /// Returns the waiters, because the event has happened.
    pub(crate) fn take(&mut self) -> Vec<W> {
        self.prune_at = PRUNE_FROM;
        std::mem::take(&mut self.waiters)
    }

    /// Returns the number of waiters, including some abandoned ones.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use crate::sync::completion;

    #[test]
    fn dropped_waiters_are_removed_and_awaited_ones_stay() {
        let mut waiters = Waiters::default();
        let mut kept = Vec::new();
        for n in 0..10_000 {
            let (completer, completion) = completion::<()>(None);
            drop(waiters.push(completer));
            if n % 1000 == 0 {
                kept.push(completion);
            }
            assert!(waiters.len() <= 2 * PRUNE_FROM + 2 * kept.len());
        }
        waiters.take().into_iter().for_each(|completer| completer.complete(Ok(())));
        assert!(kept.into_iter().all(|completion| completion.wait().is_ok()));
    }
}
