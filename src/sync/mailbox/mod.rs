//! A loop's queue of tasks: many threads put in, the loop takes out, in order.
//!
//! Always holds: what was put in by one thread comes out in that thread's order; at most `limit` entries wait, but for
//! those that must not be lost; a closed mailbox refuses and hands back, and what it accepted before comes out.
//!
//! Entries lie in chunks behind a lock. Who puts one in holds it for a few instructions; the loop takes a whole chunk
//! at a time and then works through it with no lock and no locked instruction. A chunk that was emptied is used again,
//! so that nothing is allocated as long as not more than [`SPARE`] chunks are under way. Measured beside a lock-free
//! list (crossbeam's `SegQueue`), this is the cheaper one at both ends: a lock and its release are two locked
//! instructions, where the list has four, and its reader two more for every entry. Nor does the loop wait for longer:
//! a thread that is held up while it has the lock holds up the others, but so does one that is held up between taking a
//! place in a list and filling it, and there the loop would spin.
//!
//! Numbers tell how much waits, without the lock: `entered`, written by who holds it, and `taken`, written by the loop.
//! `taken` is published and read so that no length is reckoned from an older `entered` than it: a length that is read
//! elsewhere may be out of date, never torn. Who waits for room ([`SpaceWaiters`]) has its own lock.

mod space_waiters;

use super::primitives::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};
use crate::{
    Error, Resource,
    error::{SendError, drop_guarded},
};
use crossbeam_utils::CachePadded;
use space_waiters::SpaceWaiters;
use std::{
    cell::Cell,
    collections::VecDeque,
    mem,
    sync::{Arc, PoisonError},
    time::Duration,
};

/// Entries in a chunk: so many are taken out under one lock.
const CHUNK: usize = 128;

/// Emptied chunks that are kept for later.
const SPARE: usize = 8;

/// The submitting end; shared by all handles of a loop.
pub(crate) struct Mailbox<T> {
    limit: u64,
    refused: AtomicUsize,
    /// Who waits until the queue is no longer full.
    room: SpaceWaiters,
    both: Arc<Both<T>>,
}

/// The loop's end.
pub(crate) struct Inbox<T> {
    both: Arc<Both<T>>,
    /// What it has taken and not given out yet.
    chunk: VecDeque<T>,
    /// `entered` as it was when last looked at: while it is ahead of `taken`, nobody has to look.
    seen: Cell<u64>,
}

/// What both ends use; each end has a cache line that it writes, lest one slow down the other.
struct Both<T> {
    front: CachePadded<Front<T>>,
    /// Entries that were ever given out; written by the loop only, with each.
    taken: CachePadded<AtomicU64>,
}

/// In this order, so that who puts an entry in works on one cache line beside the entry's own.
#[repr(C)]
struct Front<T> {
    /// Entries that were ever put in; written under the lock.
    entered: AtomicU64,
    queue: Mutex<Queue<T>>,
}

#[repr(C)]
struct Queue<T> {
    /// There is room while `entered` is less: an earlier `taken` plus the limit. Not looked up for every entry: the
    /// loop is writing that number all the time.
    room_until: u64,
    closed: bool,
    /// The chunk that is being filled; its entries are the youngest.
    filling: VecDeque<T>,
    /// Full chunks, the oldest first.
    full: VecDeque<VecDeque<T>>,
    /// Empty ones, to be filled.
    spare: Vec<VecDeque<T>>,
}

/// Why an entry was not put in. A word, where the error that comes of it is seven.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotPut {
    Full,
    Closed,
}

pub(crate) fn mailbox<T>(limit: usize) -> (Mailbox<T>, Inbox<T>) {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let queue = Queue {
        full: VecDeque::new(),
        filling: VecDeque::new(),
        spare: Vec::new(),
        room_until: limit,
        closed: false,
    };
    let both = Arc::new(Both {
        front: CachePadded::new(Front { entered: AtomicU64::new(0), queue: Mutex::new(queue) }),
        taken: CachePadded::new(AtomicU64::new(0)),
    });
    let mailbox =
        Mailbox { limit, refused: AtomicUsize::new(0), room: SpaceWaiters::new(), both: both.clone() };
    (mailbox, Inbox { both, chunk: VecDeque::new(), seen: Cell::new(0) })
}

impl<T> Both<T> {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.front.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries that wait.
    fn len(&self) -> u64 {
        // In this order: what is taken was counted as entered before.
        let taken = self.taken.load(Ordering::Acquire);
        self.front.entered.load(Ordering::Relaxed).saturating_sub(taken)
    }

    fn close(&self) {
        self.lock().closed = true;
    }
}

impl<T> Queue<T> {
    #[inline]
    fn push(&mut self, entry: T, entered: &AtomicU64) {
        if self.filling.len() >= CHUNK {
            self.begin_chunk();
        }
        self.filling.push_back(entry);
        entered.store(entered.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[cold]
    fn begin_chunk(&mut self) {
        let empty = self.spare.pop().unwrap_or_else(|| VecDeque::with_capacity(CHUNK));
        self.full.push_back(mem::replace(&mut self.filling, empty));
    }
}

impl<T> Mailbox<T> {
    /// Puts one entry in.
    ///
    /// # Errors
    /// Hands it back if the queue is full, or its loop has ended.
    pub(crate) fn put(&self, entry: T) -> Result<(), SendError<T>> {
        self.try_put(entry).map_err(|(why, value)| SendError::new(value, self.reason(why)))
    }

    /// As [`put`](Mailbox::put), of an entry that is made when it is clear that it is accepted: where it is needed, not
    /// moved there from call to call. To make it must call nothing of the program's: it is done under the lock.
    ///
    /// # Errors
    /// If the queue is full, or its loop has ended; nothing is made then. [`reason`](Mailbox::reason) makes an error
    /// of it.
    #[inline]
    pub(crate) fn put_with(&self, make: impl FnOnce() -> T) -> Result<(), NotPut> {
        let mut queue = self.both.lock();
        self.admit(&mut queue)?;
        queue.push(make(), &self.both.front.entered);
        Ok(())
    }

    /// The error that a refusal is; to be asked for once, since it is counted.
    #[cold]
    pub(crate) fn reason(&self, why: NotPut) -> Error {
        match why {
            NotPut::Full => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
                Error::Full { resource: Resource::LoopQueue, limit }
            }
            NotPut::Closed => Error::ShutDown,
        }
    }

    /// Puts one entry in as soon as there is room, for which it waits up to `timeout`. Calls `wake` before it waits:
    /// if the loop sleeps, although its queue is full, it must be woken. Not for the loop's own thread.
    ///
    /// # Errors
    /// Hands it back if there was no room all the time, or the mailbox is closed.
    pub(crate) fn put_timeout(
        &self,
        entry: T,
        timeout: Duration,
        wake: impl Fn(),
    ) -> Result<(), SendError<T>> {
        let mut waiting = match self.try_put(entry) {
            Err((NotPut::Full, entry)) => Some(entry),
            Err((why, value)) => return Err(SendError::new(value, self.reason(why))),
            Ok(()) => return Ok(()),
        };
        let put = self.room.wait(timeout, || match self.try_put(waiting.take()?) {
            Err((NotPut::Full, entry)) => {
                waiting = Some(entry);
                wake();
                None
            }
            put => Some(put),
        });
        let refused = match (put, waiting) {
            (Some(put), _) => put,
            (None, Some(entry)) => Err((NotPut::Full, entry)),
            (None, None) => unreachable!("what was put in or refused has an answer"),
        };
        refused.map_err(|(why, value)| SendError::new(value, self.reason(why)))
    }

    /// The loop tells those who wait that it has taken entries out.
    #[inline]
    pub(crate) fn announce_room(&self) {
        self.room.announce();
    }

    /// Puts one entry in even if the queue is full: for what must not be lost, like a cancel or a shutdown.
    ///
    /// # Errors
    /// Hands it back if the mailbox is closed, or its loop has ended.
    pub(crate) fn put_always(&self, entry: T) -> Result<(), SendError<T>> {
        let mut queue = self.both.lock();
        if queue.closed {
            return Err(SendError::new(entry, Error::ShutDown));
        }
        queue.push(entry, &self.both.front.entered);
        Ok(())
    }

    fn try_put(&self, entry: T) -> Result<(), (NotPut, T)> {
        let mut queue = self.both.lock();
        match self.admit(&mut queue) {
            Ok(()) => queue.push(entry, &self.both.front.entered),
            Err(why) => return Err((why, entry)),
        }
        Ok(())
    }

    #[inline]
    fn admit(&self, queue: &mut Queue<T>) -> Result<(), NotPut> {
        if queue.closed {
            return Err(NotPut::Closed);
        }
        if self.both.front.entered.load(Ordering::Relaxed) >= queue.room_until && !self.look_for_room(queue) {
            return Err(NotPut::Full);
        }
        Ok(())
    }

    /// Looks at what was taken out meanwhile, and notes how far that reaches.
    #[cold]
    fn look_for_room(&self, queue: &mut Queue<T>) -> bool {
        let taken = self.both.taken.load(Ordering::Acquire);
        queue.room_until = taken.saturating_add(self.limit);
        self.both.front.entered.load(Ordering::Relaxed) < queue.room_until
    }

    /// Whether so much waits that a sleeping loop should not leave it for later, lest there be no room for what is
    /// urgent.
    pub(crate) fn is_crowded(&self) -> bool {
        self.both.len() >= self.limit / 2
    }

    /// Entries that wait.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.both.len()).unwrap_or(usize::MAX)
    }

    /// Accepts no more; what was accepted before can be taken. Who waits for room is refused.
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
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.chunk.is_empty() && !self.take_chunk() {
            return None;
        }
        let entry = self.chunk.pop_front();
        let taken = self.both.taken.load(Ordering::Relaxed) + 1;
        self.both.taken.store(taken, Ordering::Release);
        entry
    }

    /// Takes the oldest chunk for its own, which is empty; false if there is none.
    #[cold]
    fn take_chunk(&mut self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut queue = self.both.lock();
        self.seen.set(self.both.front.entered.load(Ordering::Relaxed));
        let Some(chunk) = queue.full.pop_front() else {
            mem::swap(&mut self.chunk, &mut queue.filling);
            return true;
        };
        if queue.full.is_empty() {
            // What a flood has left.
            queue.full.shrink_to(SPARE);
        }
        let empty = mem::replace(&mut self.chunk, chunk);
        if queue.spare.len() < SPARE {
            queue.spare.push(empty);
        } else {
            // Freed when the others may go on.
            drop(queue);
            drop(empty);
        }
        true
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        let taken = self.both.taken.load(Ordering::Relaxed);
        if self.seen.get() == taken {
            // What is put in at this moment may be missed, as it may be by any look.
            self.seen.set(self.both.front.entered.load(Ordering::Relaxed));
        }
        self.seen.get() == taken
    }
}

impl<T> Drop for Inbox<T> {
    /// What is left is dropped here, on the loop's thread, and not when the last handle goes.
    fn drop(&mut self) {
        self.both.close();
        while let Some(entry) = self.take() {
            drop_guarded(entry);
        }
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn e_29_a_full_mailbox_hands_back_and_takes_again_when_there_is_room() {
        let (mailbox, mut inbox) = mailbox(2);
        assert!(mailbox.put(1).is_ok() && mailbox.put(2).is_ok());
        let refused = mailbox.put(3).unwrap_err();
        assert!(matches!(refused.into_parts(), (3, Error::Full { limit: 2, .. })));
        assert!(mailbox.put_always(4).is_ok(), "what must not be lost comes in");
        assert_eq!((mailbox.len(), mailbox.refused()), (3, 1));
        assert_eq!([inbox.take(), inbox.take()], [Some(1), Some(2)]);
        assert!(mailbox.put(5).is_ok());
        assert_eq!([inbox.take(), inbox.take(), inbox.take()], [Some(4), Some(5), None]);
        assert_eq!(mailbox.len(), 0);
    }

    #[test]
    fn e_59_a_closed_mailbox_hands_back_and_keeps_what_it_has() {
        let (mailbox, mut inbox) = mailbox(2);
        mailbox.put(1).unwrap();
        mailbox.close();
        for refused in [mailbox.put(2), mailbox.put_always(2)] {
            assert!(matches!(refused.unwrap_err().into_parts(), (2, Error::ShutDown)));
        }
        assert_eq!((mailbox.len(), inbox.take(), mailbox.len()), (1, Some(1), 0));
    }

    #[test]
    fn e_29_the_limit_holds_after_any_number_of_entries() {
        for limit in [5, 3 * CHUNK] {
            the_limit_holds(limit);
        }
    }

    fn the_limit_holds(limit: usize) {
        let (mailbox, mut inbox) = mailbox(limit);
        let mut waiting = std::collections::VecDeque::new();
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for n in 0..if cfg!(miri) { 1_000.min(200 * limit) } else { 200 * limit } {
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
                    assert_eq!(put, waiting.len() < limit);
                    waiting.extend(put.then_some(n));
                }
            }
            assert_eq!(mailbox.len(), waiting.len());
            assert_eq!(mailbox.is_crowded(), waiting.len() >= limit / 2);
        }
        if !cfg!(miri) {
            assert!(mailbox.refused() > 0);
        }
    }

    #[test]
    fn a_flood_comes_out_in_order_and_leaves_little_behind() {
        let (mailbox, mut inbox) = mailbox(usize::MAX);
        let mut expected = 0;
        for flood in [1, CHUNK, CHUNK + 1, 3 * SPARE * CHUNK + 7, 5] {
            for n in 0..flood {
                mailbox.put(expected + n).unwrap();
            }
            assert_eq!(mailbox.len(), flood);
            for _ in 0..flood {
                assert_eq!(inbox.take(), Some(expected));
                expected += 1;
            }
            assert!(inbox.is_empty() && inbox.take().is_none());
        }
        let queue = mailbox.both.lock();
        assert_eq!(queue.spare.len(), SPARE, "the rest was given back");
        assert!(queue.full.capacity() <= 4 * SPARE);
    }

    #[test]
    fn e_59_what_is_left_goes_with_the_inbox() {
        let (mailbox, inbox) = mailbox(16);
        let left = Arc::new(());
        mailbox.put(left.clone()).unwrap();
        drop(inbox);
        assert_eq!((Arc::strong_count(&left), mailbox.len()), (1, 0));
        let refused = mailbox.put(left.clone()).unwrap_err();
        assert!(matches!(refused.error(), Error::ShutDown));
    }

    #[test]
    fn e_59_what_a_closed_mailbox_has_accepted_arrives() {
        for _ in 0..if cfg!(miri) { 10 } else { 200 } {
            let (mailbox, mut inbox) = mailbox(usize::MAX);
            std::thread::scope(|scope| {
                let put = || (0..).take_while(|n| mailbox.put(*n).is_ok()).count();
                let threads = [scope.spawn(put), scope.spawn(put)];
                while inbox.take().is_none() {
                    std::thread::yield_now();
                }
                mailbox.close();
                let mut taken = 1;
                while inbox.take().is_some() {
                    taken += 1;
                }
                let accepted: usize = threads.map(|thread| thread.join().unwrap()).iter().sum();
                assert_eq!(taken, accepted);
                assert!(inbox.take().is_none());
            });
        }
    }

    #[test]
    fn e_29_a_waiter_whose_time_is_up_has_its_entry_back() {
        let (mailbox, mut inbox) = mailbox(1);
        mailbox.put_timeout(1, Duration::ZERO, || panic!("there is room")).unwrap();
        let wakes = std::cell::Cell::new(0);
        for timeout in [Duration::ZERO, Duration::from_millis(1)] {
            let refused = mailbox.put_timeout(2, timeout, || wakes.set(wakes.get() + 1)).unwrap_err();
            assert!(matches!(refused.into_parts(), (2, Error::Full { limit: 1, .. })));
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
    ) -> std::thread::ScopedJoinHandle<'scope, Result<(), SendError<i32>>> {
        let (waits, waiting) = std::sync::mpsc::channel();
        let waiter = scope
            .spawn(move || mailbox.put_timeout(entry, Duration::from_secs(600), || waits.send(()).unwrap()));
        waiting.recv().expect("it has to wait");
        waiter
    }

    #[test]
    fn e_29_a_waiter_gets_in_when_room_is_announced() {
        let (mailbox, mut inbox) = mailbox(1);
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
        let (mailbox, mut inbox) = mailbox(1);
        mailbox.put(0).unwrap();
        std::thread::scope(|scope| {
            let waiters = [1, 2, 3].map(|n| wait_for_room(scope, &mailbox, n));
            mailbox.close();
            for (waiter, n) in waiters.into_iter().zip(1..) {
                let refused = waiter.join().unwrap().unwrap_err();
                assert!(matches!(refused.into_parts(), (value, Error::ShutDown) if value == n));
            }
        });
        let late = mailbox.put_timeout(4, Duration::from_secs(600), || ()).unwrap_err();
        assert!(matches!(late.into_parts(), (4, Error::ShutDown)));
        assert_eq!((inbox.take(), inbox.take(), mailbox.len()), (Some(0), None, 0));
    }
}
