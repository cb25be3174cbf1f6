//! A loop's queue of tasks: a multi-producer, single-consumer FIFO queue.
//!
//! # Invariants
//!
//! - Entries of one thread are taken in the order in which that thread put them in.
//! - At most `limit` entries wait, plus entries that must not be lost ([`Mailbox::put_always`]).
//! - A closed mailbox refuses entries and hands them back. Entries accepted before the close can
//!   still be taken.
//!
//! # Design
//!
//! Entries lie in chunks behind a lock. Producers hold the lock for a few instructions. The loop
//! takes a whole chunk at a time and processes it without a lock or a locked instruction. Emptied
//! chunks are reused, so nothing is allocated while at most [`SPARE`] chunks are in use.
//!
//! Measurements show this to be cheaper at both ends than a lock-free list (crossbeam's
//! `SegQueue`). Locking and unlocking takes two locked instructions. The list takes four, plus two
//! in its reader for every entry. Nor does the loop wait longer: a thread that is preempted while
//! holding the lock delays the others. But in the list, a thread can be preempted between claiming
//! a slot and filling it, and the loop would spin.
//!
//! The length is computed without the lock, from `entered`, which is written under the lock, and
//! `taken`, which the loop writes. The loads are ordered such that `entered` is never older than
//! `taken`. A length may therefore be out of date, but not inconsistent. Threads waiting for space
//! ([`SpaceWaiters`]) use a lock of their own.

mod space_waiters;

use super::primitives::{AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::error::{Error, Resource, SendError, drop_guarded};
use crossbeam_utils::CachePadded;
use space_waiters::SpaceWaiters;
use std::{cell::Cell, collections::VecDeque, mem, sync::Arc, time::Duration};

/// The number of entries in a chunk, which are taken under one lock.
const CHUNK: usize = 128;

/// The maximum number of empty chunks kept for reuse.
const SPARE: usize = 8;

/// The sending end, shared by all handles of a loop.
pub(crate) struct Mailbox<T> {
    limit: u64,
    refused: AtomicUsize,
    /// Threads that wait until the queue has space.
    room: SpaceWaiters,
    both: Arc<Both<T>>,
}

/// The receiving end, owned by the loop.
pub(crate) struct Inbox<T> {
    both: Arc<Both<T>>,
    /// The chunk taken from the queue, with the entries that were not returned yet.
    chunk: VecDeque<T>,
    /// The last value read from `entered`. While it is ahead of `taken`, it need not be read again.
    seen: Cell<u64>,
}

/// The state shared by both ends. Each end writes a cache line of its own, to avoid false sharing.
struct Both<T> {
    front: CachePadded<Front<T>>,
    /// The total number of entries taken out. Incremented by the loop for each entry.
    taken: CachePadded<AtomicU64>,
}

/// The sending end's state, ordered such that a `put` touches one cache line besides that of the
/// entry.
#[repr(C)]
struct Front<T> {
    /// The total number of entries put in. Written under the lock.
    entered: AtomicU64,
    queue: Mutex<Queue<T>>,
}

#[repr(C)]
struct Queue<T> {
    /// The queue has space while `entered` is less than this: an earlier value of `taken` plus the
    /// limit. `taken` is not read for every entry, because the loop writes it constantly.
    room_until: u64,
    closed: bool,
    /// The chunk that is being filled, with the newest entries.
    filling: VecDeque<T>,
    /// Full chunks, oldest first.
    full: VecDeque<VecDeque<T>>,
    /// Empty chunks for reuse.
    spare: Vec<VecDeque<T>>,
}

/// The reason why an entry was refused. It takes one word, and the corresponding error takes seven.
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
    /// Returns the number of waiting entries.
    fn len(&self) -> u64 {
        // Load `taken` first: entries taken by then have been counted in `entered`.
        let taken = self.taken.load(Ordering::Acquire);
        self.front.entered.load(Ordering::Relaxed).saturating_sub(taken)
    }

    fn close(&self) {
        self.front.queue.lock().closed = true;
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
    /// Puts an entry into the queue.
    ///
    /// # Errors
    ///
    /// The entry if the queue is full or the loop has ended.
    pub(crate) fn put(&self, entry: T) -> Result<(), SendError<T>> {
        self.put_with(entry, |entry| entry).map_err(|(why, value)| SendError::new(value, self.reason(why)))
    }

    /// Like [`put`](Mailbox::put), but constructs the entry from `value` after it was accepted.
    /// `make` runs under the lock, so it must not call user code.
    ///
    /// # Errors
    ///
    /// `value`, without a call of `make`, if the queue is full or the loop has ended.
    /// [`reason`](Mailbox::reason) converts the failure to an error.
    #[inline]
    pub(crate) fn put_with<V>(&self, value: V, make: impl FnOnce(V) -> T) -> Result<(), (NotPut, V)> {
        let mut queue = self.both.front.queue.lock();
        if let Err(why) = self.admit(&mut queue) {
            return Err((why, value));
        }
        queue.push(make(value), &self.both.front.entered);
        Ok(())
    }

    /// Converts a refusal to an error and counts it. Call this once per refusal.
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

    /// Like [`put_with`](Mailbox::put_with), but waits for space up to `timeout`. Must not be
    /// called on the loop's own thread.
    ///
    /// Calls `wake` before it waits, because a loop may sleep although its queue is full.
    ///
    /// # Errors
    ///
    /// `value` if the timeout expires or the mailbox is closed.
    pub(crate) fn put_timeout<V>(
        &self,
        value: V,
        make: impl Fn(V) -> T,
        timeout: Duration,
        wake: impl Fn(),
    ) -> Result<(), SendError<V>> {
        let mut waiting = match self.put_with(value, &make) {
            Err((NotPut::Full, value)) => Some(value),
            Err((why, value)) => return Err(SendError::new(value, self.reason(why))),
            Ok(()) => return Ok(()),
        };
        let put = self.room.wait(timeout, || match self.put_with(waiting.take()?, &make) {
            Err((NotPut::Full, value)) => {
                waiting = Some(value);
                wake();
                None
            }
            put => Some(put),
        });
        let refused = match (put, waiting) {
            (Some(put), _) => put,
            (None, Some(value)) => Err((NotPut::Full, value)),
            (None, None) => unreachable!("a value that is not waiting has a result"),
        };
        refused.map_err(|(why, value)| SendError::new(value, self.reason(why)))
    }

    /// Notifies waiting threads that the loop has taken entries out.
    #[inline]
    pub(crate) fn announce_room(&self) {
        self.room.announce();
    }

    /// Puts an entry into the queue even if it is full. For entries that must not be lost, such as
    /// cancellations and shutdown requests.
    ///
    /// # Errors
    ///
    /// The entry if the mailbox is closed or the loop has ended.
    pub(crate) fn put_always(&self, entry: T) -> Result<(), SendError<T>> {
        self.put_always_with(entry, |entry| entry)
    }

    /// Like [`put_always`](Mailbox::put_always), but constructs the entry from `value` after it was
    /// accepted, as [`put_with`](Mailbox::put_with) does.
    pub(crate) fn put_always_with<V>(&self, value: V, make: impl FnOnce(V) -> T) -> Result<(), SendError<V>> {
        let mut queue = self.both.front.queue.lock();
        if queue.closed {
            return Err(SendError::new(value, Error::ShutDown));
        }
        queue.push(make(value), &self.both.front.entered);
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

    /// Updates the limit from the current value of `taken`. Returns whether the queue has space.
    #[cold]
    fn look_for_room(&self, queue: &mut Queue<T>) -> bool {
        let taken = self.both.taken.load(Ordering::Acquire);
        queue.room_until = taken.saturating_add(self.limit);
        self.both.front.entered.load(Ordering::Relaxed) < queue.room_until
    }

    /// Returns whether the queue is at least half full. A sleeping loop should then be woken even
    /// for entries that could wait, to keep space for urgent ones.
    pub(crate) fn is_crowded(&self) -> bool {
        self.both.len() >= self.limit / 2
    }

    /// Returns whether an entry waits for which `wanted` is true. Entries of the chunk that the
    /// receiving end has taken are not looked at.
    #[cfg(feature = "simulation")]
    pub(crate) fn has(&self, wanted: impl Fn(&T) -> bool) -> bool {
        if self.both.len() == 0 {
            return false;
        }
        let queue = self.both.front.queue.lock();
        queue.full.iter().flatten().chain(&queue.filling).any(wanted)
    }

    /// Returns the number of waiting entries.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.both.len()).unwrap_or(usize::MAX)
    }

    /// Closes the mailbox. Entries accepted before can still be taken. Threads waiting for space
    /// are refused.
    pub(crate) fn close(&self) {
        self.both.close();
        self.room.wake_all();
    }

    /// Returns the number of entries refused because the queue was full.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

impl<T> Inbox<T> {
    /// Removes and returns the oldest entry.
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

    /// Replaces the loop's empty chunk by the oldest chunk of the queue. Returns `false` if the
    /// queue is empty.
    #[cold]
    fn take_chunk(&mut self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut queue = self.both.front.queue.lock();
        self.seen.set(self.both.front.entered.load(Ordering::Relaxed));
        let Some(chunk) = queue.full.pop_front() else {
            mem::swap(&mut self.chunk, &mut queue.filling);
            return true;
        };
        if queue.full.is_empty() {
            // Free memory that a burst has left.
            queue.full.shrink_to(SPARE);
        }
        let empty = mem::replace(&mut self.chunk, chunk);
        if queue.spare.len() < SPARE {
            queue.spare.push(empty);
        } else {
            // Free the chunk after the lock was released.
            drop(queue);
            drop(empty);
        }
        true
    }

    /// Returns whether no entries are waiting.
    pub(crate) fn is_empty(&self) -> bool {
        let taken = self.both.taken.load(Ordering::Relaxed);
        if self.seen.get() == taken {
            // An entry put in concurrently may be missed, as with any check.
            self.seen.set(self.both.front.entered.load(Ordering::Relaxed));
        }
        self.seen.get() == taken
    }
}

impl<T> Drop for Inbox<T> {
    /// Drops the remaining entries here, on the loop's thread, and not when the last handle is
    /// dropped.
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
        assert!(mailbox.put_always(4).is_ok(), "accepted although the queue is full");
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
                    let put =
                        if kind == 4 { mailbox.put(n).is_ok() } else { mailbox.put_with(n, |n| n).is_ok() };
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
    fn a_burst_is_taken_in_order_and_its_memory_is_freed() {
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
        let queue = mailbox.both.front.queue.lock();
        assert_eq!(queue.spare.len(), SPARE, "the other chunks were freed");
        assert!(queue.full.capacity() <= 4 * SPARE);
    }

    #[test]
    fn e_59_dropping_the_inbox_drops_the_remaining_entries() {
        let (mailbox, inbox) = mailbox(16);
        let left = Arc::new(());
        mailbox.put(left.clone()).unwrap();
        drop(inbox);
        assert_eq!((Arc::strong_count(&left), mailbox.len()), (1, 0));
        let refused = mailbox.put(left.clone()).unwrap_err();
        assert!(matches!(refused.error(), Error::ShutDown));
    }

    #[test]
    fn e_59_entries_accepted_before_the_close_are_taken() {
        for _ in 0..if cfg!(miri) { 10 } else { 100 } {
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
    fn e_29_a_waiter_gets_its_entry_back_after_the_timeout() {
        let (mailbox, mut inbox) = mailbox(1);
        mailbox.put_timeout(1, |n| n, Duration::ZERO, || panic!("there is room")).unwrap();
        let wakes = std::cell::Cell::new(0);
        for timeout in [Duration::ZERO, Duration::from_millis(1)] {
            let refused = mailbox.put_timeout(2, |n| n, timeout, || wakes.set(wakes.get() + 1)).unwrap_err();
            assert!(matches!(refused.into_parts(), (2, Error::Full { limit: 1, .. })));
        }
        assert_eq!((mailbox.len(), mailbox.refused()), (1, 2), "counted once for each timeout");
        assert!(wakes.get() >= 2, "the loop was woken before each wait");
        assert_eq!([inbox.take(), inbox.take()], [Some(1), None]);
        mailbox.announce_room();
        mailbox.put_timeout(3, |n| n, Duration::ZERO, || ()).unwrap();
    }

    /// Spawns a thread that puts an entry into a full mailbox. Returns when it waits or is about to
    /// wait.
    fn wait_for_room<'scope>(
        scope: &'scope std::thread::Scope<'scope, '_>,
        mailbox: &'scope Mailbox<i32>,
        entry: i32,
    ) -> std::thread::ScopedJoinHandle<'scope, Result<(), SendError<i32>>> {
        let (waits, waiting) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            mailbox.put_timeout(entry, |n| n, Duration::from_secs(600), || waits.send(()).unwrap())
        });
        waiting.recv().expect("the mailbox is full");
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
    fn e_59_closing_a_mailbox_hands_back_the_entries_of_all_waiters() {
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
        let late = mailbox.put_timeout(4, |n| n, Duration::from_secs(600), || ()).unwrap_err();
        assert!(matches!(late.into_parts(), (4, Error::ShutDown)));
        assert_eq!((inbox.take(), inbox.take(), mailbox.len()), (Some(0), None, 0));
    }
}
