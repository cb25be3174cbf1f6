//! A loop's queue of tasks: many threads put in, the loop takes out, in order.
//!
//! Always holds: what was put in by one thread comes out in that thread's order; a closed mailbox refuses and
//! hands back; at most `limit` entries wait (several threads that pass the limit at the same instant may exceed
//! it by their number). The queue is crossbeam's unbounded list: no memory is taken for room that is not used.
//!
//! Entries are counted before they are put in. So when the loop closes its mailbox, which is one bit of the same
//! number, everybody who comes later sees that it is closed, and of those who came before it knows how many entries
//! are still to arrive: what was accepted is taken out, or it was refused, nothing in between. For that the order in
//! which one number changes is enough, so nothing is asked of the memory order: what an entry holds comes with the
//! queue. `taken` is published and read so that no length is reckoned from an older `entered` than it: a length that
//! is read elsewhere may be out of date, never torn. Who waits for room ([`Room`]) has its own fences.
//!
//! To put in costs one locked instruction beside the queue's own, and no look at what the loop is writing meanwhile.

use super::{
    primitives::{AtomicU64, AtomicUsize, Ordering, Queue, yield_now},
    room::Room,
};
use crate::{
    Error,
    error::{Refused, drop_guarded},
};
use crossbeam_utils::CachePadded;
use std::{sync::Arc, time::Duration};

/// The bit of `entered` that says that no more is accepted.
const CLOSED: u64 = 1 << 63;

/// The submitting end; shared by all handles of a loop.
pub(crate) struct Mailbox<T> {
    limit: u64,
    refused: AtomicUsize,
    /// Who waits until the queue is no longer full.
    room: Room,
    both: Arc<Both<T>>,
}

/// The loop's end.
pub(crate) struct Inbox<T> {
    both: Arc<Both<T>>,
}

/// What both ends use; each number has a cache line of its own, since who writes one must not slow down who reads
/// another.
struct Both<T> {
    queue: Queue<T>,
    /// Entries that were ever put in, or are about to be; and [`CLOSED`].
    entered: CachePadded<AtomicU64>,
    /// Entries that were ever taken out; written by the loop only, with each.
    taken: CachePadded<AtomicU64>,
    /// There is room while `entered` is less: an earlier `taken` plus the limit. Any older value holds as well, only
    /// that `taken` is looked at sooner; so a model needs no atomic of its own for it.
    room_until: CachePadded<std::sync::atomic::AtomicU64>,
}

/// What is bounded, as the error says it.
pub(crate) const PENDING_TASKS: &str = "pending tasks";

pub(crate) fn mailbox<T>(limit: usize) -> (Mailbox<T>, Inbox<T>) {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let both = Arc::new(Both {
        queue: Queue::new(),
        entered: CachePadded::new(AtomicU64::new(0)),
        taken: CachePadded::new(AtomicU64::new(0)),
        room_until: CachePadded::new(limit.into()),
    });
    let mailbox = Mailbox { limit, refused: AtomicUsize::new(0), room: Room::new(), both: both.clone() };
    (mailbox, Inbox { both })
}

impl<T> Both<T> {
    /// Entries that wait, or are about to be put in.
    fn len(&self) -> u64 {
        // In this order: what is taken was counted as entered before, so the limit errs to the safe side.
        let taken = self.taken.load(Ordering::Acquire);
        let entered = self.entered.load(Ordering::Relaxed) & !CLOSED;
        entered.saturating_sub(taken)
    }

    fn close(&self) {
        self.entered.fetch_or(CLOSED, Ordering::Relaxed);
    }
}

impl<T> Mailbox<T> {
    /// Puts one entry in.
    ///
    /// # Errors
    /// Hands it back if the queue is full, or its loop has ended.
    pub(crate) fn put(&self, entry: T) -> Result<(), Refused<T>> {
        let entered = if self.has_room() { self.enter() } else { Err(self.refuse()) };
        self.push(entered, entry)
    }

    /// Puts one entry in as soon as there is room, for which it waits up to `timeout`. Calls `wake` before it waits:
    /// if the loop sleeps, although its queue is full, it must be woken. Not for the loop's own thread.
    ///
    /// # Errors
    /// Hands it back if there was no room all the time, or the mailbox is closed.
    pub(crate) fn put_timeout(&self, entry: T, timeout: Duration, wake: impl Fn()) -> Result<(), Refused<T>> {
        if self.has_room() {
            return self.put_always(entry);
        }
        let mut entry = Some(entry);
        let put = self.room.wait(timeout, || {
            // A closed mailbox may stay full: it refuses whatever its length.
            if !self.has_room() && !self.is_closed() {
                wake();
                return None;
            }
            entry.take().map(|entry| self.put_always(entry))
        });
        match (put, entry) {
            (Some(put), _) => put,
            (None, Some(entry)) => self.push(Err(self.refuse()), entry),
            (None, None) => unreachable!("what was put in or refused has an answer"),
        }
    }

    /// The loop tells those who wait that it has taken entries out.
    #[inline]
    pub(crate) fn announce_room(&self) {
        self.room.announce();
    }

    fn is_closed(&self) -> bool {
        self.both.entered.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// As [`put`](Mailbox::put), of an entry that is made when it is clear that it is accepted: where it is needed, not
    /// moved there from call to call.
    ///
    /// # Errors
    /// If the queue is full, or its loop has ended; nothing is made then.
    #[inline]
    pub(crate) fn put_with(&self, make: impl FnOnce() -> T) -> Result<(), Error> {
        if !self.has_room() {
            return Err(self.refuse());
        }
        self.enter()?;
        self.both.queue.push(make());
        Ok(())
    }

    /// Puts one entry in even if the queue is full: for what must not be lost, like a cancel or a shutdown.
    ///
    /// # Errors
    /// Hands it back if the mailbox is closed, or its loop has ended.
    pub(crate) fn put_always(&self, entry: T) -> Result<(), Refused<T>> {
        self.push(self.enter(), entry)
    }

    fn push(&self, entered: Result<(), Error>, entry: T) -> Result<(), Refused<T>> {
        match entered {
            Ok(()) => {
                self.both.queue.push(entry);
                Ok(())
            }
            Err(reason) => Err(Refused { value: entry, reason }),
        }
    }

    /// Counts an entry, which must be pushed then.
    #[inline]
    fn enter(&self) -> Result<(), Error> {
        if self.both.entered.fetch_add(1, Ordering::Relaxed) & CLOSED == 0 {
            return Ok(());
        }
        self.both.entered.fetch_sub(1, Ordering::Relaxed);
        Err(Error::ShutDown)
    }

    #[inline]
    fn has_room(&self) -> bool {
        let entered = self.both.entered.load(Ordering::Relaxed) & !CLOSED;
        entered < self.both.room_until.load(Ordering::Relaxed) || self.look_for_room()
    }

    /// Looks at what was taken out meanwhile, and notes how far that reaches. Not done for every entry: the loop is
    /// writing that number all the time.
    #[cold]
    fn look_for_room(&self) -> bool {
        let taken = self.both.taken.load(Ordering::Acquire);
        self.both.room_until.fetch_max(taken.saturating_add(self.limit), Ordering::Relaxed);
        // Once more, and after the other number: so the limit errs to the safe side.
        (self.both.entered.load(Ordering::Relaxed) & !CLOSED).saturating_sub(taken) < self.limit
    }

    #[cold]
    fn refuse(&self) -> Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        Error::Full { what: PENDING_TASKS, limit }
    }

    /// Whether so much waits that a sleeping loop should not leave it for later, lest there be no room for what is
    /// urgent.
    pub(crate) fn is_crowded(&self) -> bool {
        self.both.len() >= self.limit / 2
    }

    /// Entries that wait, or are about to be put in.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.both.len()).unwrap_or(usize::MAX)
    }

    /// Accepts no more; what was accepted before arrives until [`Mailbox::len`] is zero. Who waits for room is
    /// refused.
    pub(crate) fn close(&self) {
        self.both.close();
        self.room.wake_all();
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
        let entry = self.both.queue.pop();
        if entry.is_some() {
            let taken = self.both.taken.load(Ordering::Relaxed) + 1;
            self.both.taken.store(taken, Ordering::Release);
        }
        entry
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.both.queue.is_empty()
    }
}

impl<T> Drop for Inbox<T> {
    /// What is left is dropped here, on the loop's thread, and not when the last handle goes.
    fn drop(&mut self) {
        self.both.close();
        while self.both.len() > 0 {
            match self.take() {
                Some(entry) => drop_guarded(entry),
                // Another thread is just about to put it in.
                None => yield_now(),
            }
        }
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn e_29_a_full_mailbox_hands_back_and_takes_again_when_there_is_room() {
        let (mailbox, inbox) = mailbox(2);
        assert!(mailbox.put(1).is_ok() && mailbox.put(2).is_ok());
        let refused = mailbox.put(3).unwrap_err();
        assert!(matches!(refused, Refused { value: 3, reason: Error::Full { limit: 2, .. } }));
        assert!(mailbox.put_always(4).is_ok(), "what must not be lost comes in");
        assert_eq!((mailbox.len(), mailbox.refused()), (3, 1));
        assert_eq!([inbox.take(), inbox.take()], [Some(1), Some(2)]);
        assert!(mailbox.put(5).is_ok());
        assert_eq!([inbox.take(), inbox.take(), inbox.take()], [Some(4), Some(5), None]);
        assert_eq!(mailbox.len(), 0);
    }

    #[test]
    fn e_59_a_closed_mailbox_hands_back_and_keeps_what_it_has() {
        let (mailbox, inbox) = mailbox(2);
        mailbox.put(1).unwrap();
        mailbox.close();
        for refused in [mailbox.put(2), mailbox.put_always(2)] {
            assert!(matches!(refused, Err(Refused { value: 2, reason: Error::ShutDown })));
        }
        assert_eq!((mailbox.len(), inbox.take(), mailbox.len()), (1, Some(1), 0));
    }

    #[test]
    fn e_29_the_limit_holds_after_any_number_of_entries() {
        let (mailbox, inbox) = mailbox(5);
        let mut waiting = std::collections::VecDeque::new();
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for n in 0..1000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            match x % 7 {
                0..3 => assert_eq!(inbox.take(), waiting.pop_front()),
                3 => {
                    mailbox.put_always(n).unwrap();
                    waiting.push_back(n);
                }
                kind => {
                    let put = if kind == 4 { mailbox.put(n).is_ok() } else { mailbox.put_with(|| n).is_ok() };
                    assert_eq!(put, waiting.len() < 5);
                    waiting.extend(put.then_some(n));
                }
            }
            assert_eq!(mailbox.len(), waiting.len());
            assert_eq!(mailbox.is_crowded(), waiting.len() >= 2);
        }
        assert!(mailbox.refused() > 0);
    }

    #[test]
    fn e_59_what_is_left_goes_with_the_inbox() {
        let (mailbox, inbox) = mailbox(16);
        let left = Arc::new(());
        mailbox.put(left.clone()).unwrap();
        drop(inbox);
        assert_eq!((Arc::strong_count(&left), mailbox.len()), (1, 0));
        let refused = mailbox.put(left.clone()).unwrap_err();
        assert!(matches!(refused, Refused { reason: Error::ShutDown, .. }));
    }

    #[test]
    fn e_59_what_a_closed_mailbox_has_accepted_arrives() {
        for _ in 0..if cfg!(miri) { 10 } else { 200 } {
            let (mailbox, inbox) = mailbox(usize::MAX);
            std::thread::scope(|scope| {
                let put = || (0..).take_while(|n| mailbox.put(*n).is_ok()).count();
                let threads = [scope.spawn(put), scope.spawn(put)];
                while inbox.take().is_none() {
                    std::thread::yield_now();
                }
                mailbox.close();
                let mut taken = 1;
                while mailbox.len() > 0 {
                    taken += usize::from(inbox.take().is_some());
                }
                let accepted: usize = threads.map(|thread| thread.join().unwrap()).iter().sum();
                assert_eq!(taken, accepted);
                assert!(inbox.take().is_none());
            });
        }
    }

    #[test]
    fn e_29_a_waiter_whose_time_is_up_has_its_entry_back() {
        let (mailbox, inbox) = mailbox(1);
        mailbox.put_timeout(1, Duration::ZERO, || panic!("there is room")).unwrap();
        let wakes = std::cell::Cell::new(0);
        for timeout in [Duration::ZERO, Duration::from_millis(1)] {
            let refused = mailbox.put_timeout(2, timeout, || wakes.set(wakes.get() + 1)).unwrap_err();
            assert!(matches!(refused, Refused { value: 2, reason: Error::Full { limit: 1, .. } }));
        }
        assert_eq!((mailbox.len(), mailbox.refused()), (1, 2), "once for each that gave up");
        assert!(wakes.get() >= 2, "the loop was told that somebody waits");
        assert_eq!([inbox.take(), inbox.take()], [Some(1), None]);
        mailbox.announce_room();
        mailbox.put_timeout(3, Duration::ZERO, || ()).unwrap();
    }

    /// Has an entry wait for room in a full mailbox; returns when it waits, or is just about to.
    fn wait_for_room<'scope>(
        scope: &'scope std::thread::Scope<'scope, '_>,
        mailbox: &'scope Mailbox<i32>,
        entry: i32,
    ) -> std::thread::ScopedJoinHandle<'scope, Result<(), Refused<i32>>> {
        let (waits, waiting) = std::sync::mpsc::channel();
        let waiter = scope
            .spawn(move || mailbox.put_timeout(entry, Duration::from_secs(600), || waits.send(()).unwrap()));
        waiting.recv().expect("it has to wait");
        waiter
    }

    #[test]
    fn e_29_a_waiter_gets_in_when_room_is_announced() {
        let (mailbox, inbox) = mailbox(1);
        mailbox.put(1).unwrap();
        std::thread::scope(|scope| {
            let waiter = wait_for_room(scope, &mailbox, 2);
            assert_eq!(inbox.take(), Some(1));
            mailbox.announce_room();
            waiter.join().unwrap().unwrap();
        });
        assert_eq!((inbox.take(), mailbox.refused()), (Some(2), 0));
    }

    #[test]
    fn e_59_a_mailbox_that_closes_hands_back_to_all_who_wait() {
        let (mailbox, inbox) = mailbox(1);
        mailbox.put(0).unwrap();
        std::thread::scope(|scope| {
            let waiters = [1, 2, 3].map(|n| wait_for_room(scope, &mailbox, n));
            mailbox.close();
            for (waiter, n) in waiters.into_iter().zip(1..) {
                let refused = waiter.join().unwrap().unwrap_err();
                assert!(matches!(refused, Refused { value, reason: Error::ShutDown } if value == n));
            }
        });
        let late = mailbox.put_timeout(4, Duration::from_secs(600), || ()).unwrap_err();
        assert!(matches!(late, Refused { value: 4, reason: Error::ShutDown }));
        assert_eq!((inbox.take(), inbox.take(), mailbox.len()), (Some(0), None, 0));
    }
}
