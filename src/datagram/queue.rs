//! Datagrams that wait until the kernel accepts more.
//!
//! Invariants: first in, first out. The weight of a datagram is its length plus 96 bytes, so that
//! empty ones count. The total weight never exceeds the limit, except that an empty queue always
//! takes one datagram. Pure. Runs on the channel's loop.

use crate::channel::Confirmation;
use bytes::Bytes;
use std::{collections::VecDeque, net::SocketAddr};

/// The weight of a datagram in addition to its bytes.
const OVERHEAD: usize = 96;

/// Returns the weight of a datagram, which counts against the limit.
pub(crate) fn weight(datagram: &Bytes) -> usize {
    datagram.len() + OVERHEAD
}

/// A datagram to be sent.
pub(crate) struct Outgoing {
    pub(crate) datagram: Bytes,
    /// `None` for the peer of the channel.
    pub(crate) to: Option<SocketAddr>,
    /// Receives the result. `None` to report a failure to the handler.
    pub(crate) done: Option<Confirmation>,
}

#[derive(Default)]
pub(crate) struct SendQueue {
    waiting: VecDeque<Outgoing>,
    weight: usize,
}

impl SendQueue {
    /// Appends a datagram.
    ///
    /// # Errors
    /// The datagram if the queue is full.
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
            // An idle channel must not keep the memory of its longest queue.
            self.waiting = VecDeque::new();
        }
        Some(outgoing)
    }

    /// Called before the peer is replaced or removed: binds the queued datagrams to the old one.
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
    fn a_datagram_beyond_the_limit_is_handed_back() {
        let mut queue = SendQueue::default();
        assert!(queue.push(of(4), 200).is_ok());
        assert!(queue.push(of(4), 200).is_ok(), "the weight may equal the limit");
        let refused = queue.push(of(0), 200).err().unwrap();
        assert_eq!((refused.datagram.len(), queue.weight()), (0, 200));
        queue.pop().unwrap();
        assert!(queue.push(of(0), 200).is_ok());
        assert_eq!(queue.weight(), 196);
    }

    #[test]
    fn an_empty_queue_takes_a_datagram_of_any_size_and_releases_its_memory() {
        let mut queue = SendQueue::default();
        assert!(queue.push(of(1000), 1).is_ok());
        assert!(queue.push(of(0), 1).is_err());
        assert_eq!(queue.front().unwrap().datagram.len(), 1000);
        assert_eq!(queue.pop().unwrap().datagram.len(), 1000);
        assert!(queue.is_empty() && queue.pop().is_none());
        assert_eq!((queue.weight(), queue.waiting.capacity()), (0, 0));
    }
}
