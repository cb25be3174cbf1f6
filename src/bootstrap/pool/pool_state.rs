//! What a pool keeps: which channels are its own and where they are, and who waits.
//!
//! Always holds: a channel of the pool is in exactly one place; it counts until it is taken off, one that is being made
//! counts from its beginning; more than `size` are there only if somebody asked for one beyond it; nobody waits while a
//! channel is free, but for as long as the pool is being served. Pure: it calls nothing, closes nothing and completes
//! nothing; whoever holds its lock does that afterwards.

use super::PoolOrder;
use crate::{Channel, Error, Result, event_loop::ScheduledTask, id::ChannelId};
use std::collections::{HashMap, VecDeque};

pub(super) struct PoolState<M, C> {
    size: usize,
    order: PoolOrder,
    places: HashMap<ChannelId, ChannelPlace>,
    /// The one that came back last at the back.
    free: VecDeque<Channel<M>>,
    /// Channels that are being made.
    making: usize,
    /// By number, which is the order in which they came.
    waiters: VecDeque<Waiter<C>>,
    next_number: u64,
    /// Whether somebody gives channels to waiters just now.
    serving: bool,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChannelPlace {
    Free,
    /// It is looked at before it is given out; it may close meanwhile.
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

/// What an acquire gets.
pub(super) enum Acquired<M> {
    /// This channel, which lies on the counter now.
    Used(Channel<M>),
    /// One that has to be made, and counts already.
    New,
}

/// What becomes of a channel that is about to be given out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handed {
    Out,
    /// It has closed meanwhile; it still counts.
    Gone,
    /// The pool has been closed meanwhile; it is taken off.
    TooLate,
}

/// What becomes of a channel that comes back.
pub(super) enum Back {
    /// It is free, or gone: somebody may wait for it, or for its place.
    Kept,
    /// It is to be closed; the pool is closed, or has too many.
    Close(Result),
}

impl<M: 'static, C> PoolState<M, C> {
    pub(super) fn new(size: usize, order: PoolOrder) -> Self {
        PoolState {
            size,
            order,
            places: HashMap::new(),
            free: VecDeque::new(),
            making: 0,
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
        self.places.len() - self.free.len() + self.making
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    fn count(&self) -> usize {
        self.places.len() + self.making
    }

    // ---- giving out ----------------------------------------------------------------------------------

    /// Something for an acquire that has nobody before it.
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

    /// One that is made whatever the size.
    pub(super) fn begin(&mut self) -> Acquired<M> {
        self.making += 1;
        Acquired::New
    }

    /// One that was being made is there.
    pub(super) fn made(&mut self, channel: &Channel<M>) {
        self.making -= 1;
        self.places.insert(channel.id(), ChannelPlace::Counter { gone: false });
    }

    /// One that was being made is not to be.
    pub(super) fn not_made(&mut self) {
        self.making -= 1;
    }

    /// Takes one off the counter that is no good, and gives another one for it.
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

    // ---- coming back ---------------------------------------------------------------------------------

    pub(super) fn come_back(&mut self, channel: &Channel<M>) -> Back {
        let id = channel.id();
        if self.closed {
            self.places.remove(&id);
            return Back::Close(Err(Error::Closed));
        }
        if self.places.get(&id) != Some(&ChannelPlace::Out) {
            // It has left by itself.
            return Back::Kept;
        }
        if !channel.is_open() {
            self.places.remove(&id);
            return Back::Kept;
        }
        if self.count() > self.size && self.waiters.is_empty() {
            self.places.remove(&id);
            return Back::Close(Ok(()));
        }
        self.places.insert(id, ChannelPlace::Free);
        self.free.push_back(channel.clone());
        Back::Kept
    }

    /// A channel has closed; whether its place is free now.
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

    /// Closes the pool: who waits, and what is free.
    pub(super) fn close(&mut self) -> (VecDeque<Waiter<C>>, VecDeque<Channel<M>>) {
        self.closed = true;
        for channel in &self.free {
            self.places.remove(&channel.id());
        }
        (std::mem::take(&mut self.waiters), std::mem::take(&mut self.free))
    }

    // ---- waiting -------------------------------------------------------------------------------------

    /// For the one who comes next, and waits, if it does, before the lock is given back.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn place_in_line(&self, number: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&number, |waiter| waiter.number).ok()
    }

    /// # Errors
    /// If `limit` wait already.
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

    /// Whether the caller is the one who serves those who wait, until [`PoolState::next_pair`] has no more.
    pub(super) fn begin_to_serve(&mut self) -> bool {
        !std::mem::replace(&mut self.serving, true)
    }

    /// The one who has waited longest and something for it; none when that was all.
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
