//! Datagrams that wait until the kernel takes more.
//!
//! Invariants: first in, first out. The weight is the bytes and 96 for each datagram, so that empty
//! ones count. It never exceeds the limit, except that an empty queue always takes one datagram.
//! Pure. Runs on the channel's loop.

use crate::sync::Completer;
use bytes::Bytes;
use std::{collections::VecDeque, net::SocketAddr};

/// What one datagram weighs besides its bytes.
const OVERHEAD: usize = 96;

/// What a datagram counts against the limit.
pub(crate) fn weight(datagram: &Bytes) -> usize {
    datagram.len() + OVERHEAD
}

/// A datagram on its way.
pub(crate) struct Outgoing {
    pub(crate) datagram: Bytes,
    /// None: the peer of the channel.
    pub(crate) to: Option<SocketAddr>,
    /// Who hears what comes of it; none: the handler, if it fails.
    pub(crate) done: Option<Completer>,
}

#[derive(Default)]
pub(crate) struct SendQueue {
    waiting: VecDeque<Outgoing>,
    weight: usize,
}

impl SendQueue {
    /// # Errors
    /// It comes back if there is no room.
    pub(crate) fn push(&mut self, outgoing: Outgoing, limit: usize) -> Result<(), Outgoing> {
        let weight = self.weight + weight(&outgoing.datagram);
        if weight > limit && !self.waiting.is_empty() {
            return Err(outgoing);
        }
        self.weight = weight;
        self.waiting.push_back(outgoing);
        Ok(())
    }

    pub(crate) fn front(&self) -> Option<&Outgoing> {
        self.waiting.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let outgoing = self.waiting.pop_front()?;
        self.weight -= weight(&outgoing.datagram);
        if self.waiting.is_empty() {
            // A channel that sends is not to hold the memory of its worst hour.
            self.waiting = VecDeque::new();
        }
        Some(outgoing)
    }

    /// The channel is about to have another peer, or none: what waits is for the one that it had.
    pub(crate) fn keep_for(&mut self, peer: SocketAddr) {
        for outgoing in &mut self.waiting {
            outgoing.to.get_or_insert(peer);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn weight(&self) -> usize {
        self.weight
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    fn of(n: usize) -> Outgoing {
        Outgoing { datagram: vec![0; n].into(), to: None, done: None }
    }

    #[test]
    fn beyond_the_limit_the_newest_comes_back() {
        let mut queue = SendQueue::default();
        assert!(queue.push(of(4), 200).is_ok());
        assert!(queue.push(of(4), 200).is_ok(), "200 are 200");
        let refused = queue.push(of(0), 200).err().unwrap();
        assert_eq!((refused.datagram.len(), queue.weight()), (0, 200));
        queue.pop().unwrap();
        assert!(queue.push(of(0), 200).is_ok());
        assert_eq!(queue.weight(), 196);
    }

    #[test]
    fn an_empty_queue_takes_one_of_any_size_and_ends_without_memory() {
        let mut queue = SendQueue::default();
        assert!(queue.push(of(1000), 1).is_ok());
        assert!(queue.push(of(0), 1).is_err());
        assert_eq!(queue.front().unwrap().datagram.len(), 1000);
        assert_eq!(queue.pop().unwrap().datagram.len(), 1000);
        assert!(queue.is_empty() && queue.pop().is_none());
        assert_eq!((queue.weight(), queue.waiting.capacity()), (0, 0));
    }
}
