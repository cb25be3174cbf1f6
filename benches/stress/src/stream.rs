//! One direction of a link: the bytes its producers sent, and the bytes that have arrived.

use crate::plan::MAX_THREADS;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The producer id of the handler. Those of the threads are 0 to `MAX_THREADS - 1`.
pub(crate) const LOOP: u8 = MAX_THREADS as u8;

pub(crate) const PRODUCERS: usize = MAX_THREADS + 1;

pub(crate) struct Stream {
    producers: [Producer; PRODUCERS],
    /// Accepted messages may be dropped while the channel is open.
    drops_messages: bool,
}

#[derive(Default)]
struct Producer {
    accepted: AtomicU32,
    /// The messages up to the last that was confirmed by `write_tracked`.
    confirmed: AtomicU32,
    received: AtomicU32,
}

impl Stream {
    pub(crate) fn new(drops_messages: bool) -> Self {
        Stream { producers: std::array::from_fn(|_| Producer::default()), drops_messages }
    }

    /// The number of the producer's next message. Only the producer calls this.
    pub(crate) fn next(&self, producer: u8) -> u32 {
        self.producers[usize::from(producer)].accepted.load(SeqCst)
    }

    pub(crate) fn accepted(&self, producer: u8) {
        self.producers[usize::from(producer)].accepted.fetch_add(1, SeqCst);
    }

    pub(crate) fn confirmed(&self, producer: u8, number: u32) {
        self.producers[usize::from(producer)].confirmed.fetch_max(number + 1, SeqCst);
    }

    /// # Errors
    /// The message is not the next one.
    pub(crate) fn received(&self, producer: u8, number: u32) -> Result<(), String> {
        let received = match self.producers.get(usize::from(producer)) {
            Some(producer) => &producer.received,
            None => return Err(format!("a message of producer {producer}, which does not exist")),
        };
        let expected = received.load(SeqCst);
        if number != expected && !(self.drops_messages && number > expected) {
            return Err(format!("message {number} of producer {producer}, expected {expected}"));
        }
        received.store(number + 1, SeqCst);
        Ok(())
    }

    /// Returns the accepted messages that have not arrived.
    pub(crate) fn missing(&self) -> Option<String> {
        if self.drops_messages {
            return None;
        }
        self.find(|producer| (producer.received.load(SeqCst), producer.accepted.load(SeqCst)), "accepted")
    }

    /// Returns the confirmed messages that have not arrived.
    pub(crate) fn unconfirmed_arrival(&self) -> Option<String> {
        if self.drops_messages {
            return None;
        }
        self.find(|producer| (producer.received.load(SeqCst), producer.confirmed.load(SeqCst)), "confirmed")
    }

    fn find(&self, read: impl Fn(&Producer) -> (u32, u32), what: &str) -> Option<String> {
        self.producers.iter().enumerate().find_map(|(number, producer)| {
            let (received, promised) = read(producer);
            (received < promised).then(|| {
                format!("{received} of {promised} {what} messages of producer {number} have arrived")
            })
        })
    }

    pub(crate) fn total_received(&self) -> u64 {
        self.producers.iter().map(|producer| u64::from(producer.received.load(SeqCst))).sum()
    }
}
