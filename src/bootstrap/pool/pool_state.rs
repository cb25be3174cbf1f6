//! The state of a pool: the place of each of its channels, and the acquires that wait.
//!
//! Invariants: each channel of the pool is in exactly one place and counts until it is removed. A
//! channel that is being opened counts from the start. The pool exceeds `size` only if a caller
//! requested a channel beyond it. No acquire waits while a channel is free, except while the pool
//! is being served. Pure: it calls, closes and completes nothing. The owner of the lock does that
//! after releasing it.

use super::PoolOrder;
use crate::{
    channel::{Channel, Reuse, ScheduledTask},
    error::{Error, Result},
    event_loop::Attempt,
    id::ChannelId,
    lookup::LookupMap,
};
use std::collections::VecDeque;

pub(super) struct PoolState<M, C> {
    size: usize,
    order: PoolOrder,
    places: LookupMap<ChannelId, ChannelPlace>,
    /// The channel that was released last is at the back.
    free: VecDeque<Channel<M>>,
    /// The channels that are being opened.
    making: Vec<Attempt>,
    /// Sorted by number, which is the order of arrival.
    waiters: VecDeque<Waiter<C>>,
    next_number: u64,
    /// Whether a thread is serving the waiters at present.
    serving: bool,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChannelPlace {
    Free,
    /// It is being checked before it is handed out, and may close at the same time.
    Counter {
        gone: bool,
    },
    Out,
}

/// An acquire that waits.
pub(super) struct Waiter<C> {
    pub(super) number: u64,
    pub(super) completer: C,
    pub(super) timer: Option<ScheduledTask>,
}

/// The channel for an acquire.
pub(super) enum Acquired<M> {
    /// This channel, which is now in the place `Counter`.
    Used(Channel<M>),
    /// A new channel, which has to be opened by this attempt and counts already.
    New(Attempt),
}

/// The result of handing out a channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handed {
    Out,
    /// The channel has closed since. It still counts.
    Gone,
    /// The pool has been closed since. The channel is removed.
    TooLate,
}

/// The result of returning a channel.
pub(super) enum Release {
    /// The channel is free or closed. A waiter can use it or its place.
    Kept,
    /// The channel is in the middle of an exchange, and still counts. It is returned afterwards, or
    /// leaves the pool when it has closed. An error if the pool is closed.
    Later(Result),
    /// The channel must be closed because the pool is closed or exceeds its size, or because the
    /// protocol does not use it again.
    Close(Result),
}

impl<M: 'static, C> PoolState<M, C> {
    pub(super) fn new(size: usize, order: PoolOrder) -> Self {
        PoolState {
            size,
            order,
            places: LookupMap::new(),
            free: VecDeque::new(),
            making: Vec::new(),
            waiters: VecDeque::new(),
            next_number: 0,
            serving: false,
            closed: false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn acquired(&self) -> usize {
        self.places.len() - self.free.len() + self.making.len()
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    fn count(&self) -> usize {
        self.places.len() + self.making.len()
    }

    // ---- handing out ----------------------------------------------------------------------------

    /// Returns a channel for an acquire without waiters ahead of it.
    pub(super) fn take(&mut self) -> Option<Acquired<M>> {
        self.take_free().or_else(|| (self.count() < self.size).then(|| self.begin()))
    }

    fn take_free(&mut self) -> Option<Acquired<M>> {
        let channel = match self.order {
            PoolOrder::Lifo => self.free.pop_back(),
            PoolOrder::Fifo => self.free.pop_front(),
        }?;
        self.places.insert(channel.id(), ChannelPlace::Counter { gone: false });
        Some(Acquired::Used(channel))
    }

    /// Counts a new channel, regardless of the size of the pool.
    pub(super) fn begin(&mut self) -> Acquired<M> {
        let attempt = Attempt::new();
        self.making.push(attempt.clone());
        Acquired::New(attempt)
    }

    /// Records that a new channel is open.
    pub(super) fn made(&mut self, attempt: &Attempt, channel: &Channel<M>) {
        self.end_attempt(attempt);
        self.places.insert(channel.id(), ChannelPlace::Counter { gone: false });
    }

    /// Records that an attempt has ended, which has opened no channel otherwise.
    pub(super) fn end_attempt(&mut self, attempt: &Attempt) {
        self.making.retain(|other| !other.is(attempt));
    }

    /// Removes a channel that is unusable, and returns a replacement.
    pub(super) fn exchange(&mut self, bad: ChannelId) -> Acquired<M> {
        self.places.remove(&bad);
        self.take_free().unwrap_or_else(|| self.begin())
    }

    pub(super) fn take_off(&mut self, id: ChannelId) {
        self.places.remove(&id);
    }

    pub(super) fn hand_out(&mut self, id: ChannelId) -> Handed {
        if self.closed {
            self.places.remove(&id);
            return Handed::TooLate;
        }
        match self.places.get_mut(&id) {
            Some(place @ ChannelPlace::Counter { gone: false }) => {
                *place = ChannelPlace::Out;
                Handed::Out
            }
            _ => Handed::Gone,
        }
    }

    // ---- returning ------------------------------------------------------------------------------

    pub(super) fn release(&mut self, channel: &Channel<M>) -> Release {
        let id = channel.id();
        if self.closed {
            if channel.is_open() && channel.reuse() == Reuse::Later {
                return Release::Later(Err(Error::Closed));
            }
            self.places.remove(&id);
            return Release::Close(Err(Error::Closed));
        }
        if self.places.get(&id) != Some(&ChannelPlace::Out) {
            // The channel has closed and left the pool.
            return Release::Kept;
        }
        if !channel.is_open() {
            self.places.remove(&id);
            return Release::Kept;
        }
        match channel.reuse() {
            Reuse::Now => {}
            Reuse::Later => return Release::Later(Ok(())),
            Reuse::Never => {
                self.places.remove(&id);
                return Release::Close(Ok(()));
            }
        }
        if self.count() > self.size && self.waiters.is_empty() {
            self.places.remove(&id);
            return Release::Close(Ok(()));
        }
        self.places.insert(id, ChannelPlace::Free);
        self.free.push_back(channel.clone());
        Release::Kept
    }

    /// Records that a channel has closed. Returns whether its place is free now.
    pub(super) fn has_closed(&mut self, id: ChannelId) -> bool {
        match self.places.get_mut(&id) {
            Some(ChannelPlace::Counter { gone }) => {
                *gone = true;
                false
            }
            Some(ChannelPlace::Free) => {
                self.free.retain(|channel| channel.id() != id);
                self.places.remove(&id).is_some()
            }
            Some(ChannelPlace::Out) => self.places.remove(&id).is_some(),
            None => false,
        }
    }

    /// Closes the pool. Returns the waiters, the free channels, and the attempts to open channels.
    /// An attempt counts until it has ended.
    pub(super) fn close(&mut self) -> (VecDeque<Waiter<C>>, VecDeque<Channel<M>>, Vec<Attempt>) {
        self.closed = true;
        for channel in &self.free {
            self.places.remove(&channel.id());
        }
        (std::mem::take(&mut self.waiters), std::mem::take(&mut self.free), self.making.clone())
    }

    // ---- waiting --------------------------------------------------------------------------------

    /// Returns the number of the next acquire. It must be used before the lock is released, so that
    /// the waiters stay sorted.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn place_in_line(&self, number: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&number, |waiter| waiter.number).ok()
    }

    /// # Errors
    /// The waiter if `limit` acquires wait already.
    pub(super) fn wait(&mut self, waiter: Waiter<C>, limit: usize) -> Result<(), Waiter<C>> {
        if self.waiters.len() >= limit {
            return Err(waiter);
        }
        self.waiters.push_back(waiter);
        Ok(())
    }

    pub(super) fn waiter(&mut self, number: u64) -> Option<&mut Waiter<C>> {
        let at = self.place_in_line(number)?;
        self.waiters.get_mut(at)
    }

    pub(super) fn wait_no_more(&mut self, number: u64) -> Option<Waiter<C>> {
        let at = self.place_in_line(number)?;
        self.waiters.remove(at)
    }

    /// Returns whether the caller must serve the waiters, until [`PoolState::next_pair`] returns
    /// `None`.
    pub(super) fn begin_to_serve(&mut self) -> bool {
        !std::mem::replace(&mut self.serving, true)
    }

    /// Returns the first waiter and a channel for it. `None` ends the serving.
    pub(super) fn next_pair(&mut self) -> Option<(Waiter<C>, Acquired<M>)> {
        if !self.waiters.is_empty()
            && let Some(slot) = self.take()
            && let Some(waiter) = self.waiters.pop_front()
        {
            return Some((waiter, slot));
        }
        self.serving = false;
        None
    }
}
