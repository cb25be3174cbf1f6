//! One direction of a link: the messages of its producers, and the last of each that has arrived.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The producers of a stream. Threads have the first numbers.
pub(super) const PRODUCERS: usize = 4;

/// The producer number of the handler.
pub(super) const LOOP: u8 = PRODUCERS as u8 - 1;

#[derive(Default)]
pub(super) struct Stream {
    producers: [Producer; PRODUCERS],
    /// Accepted messages may be dropped while the channel is open.
    pub(super) drops_messages: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Producer {
    accepted: AtomicU32,
    /// The messages up to the last that was confirmed by `write_tracked`.
    confirmed: AtomicU32,
    received: AtomicU32,
}

impl Stream {
    /// Returns the number of the producer's next message. Only the producer calls this.
    pub(super) fn next(&self, producer: u8) -> u32 {
        self.producers[usize::from(producer)].accepted.load(SeqCst)
    }

    /// Counts a message before it is written, because it may arrive before the write returns.
    pub(super) fn accepted(&self, producer: u8) {
        self.producers[usize::from(producer)].accepted.fetch_add(1, SeqCst);
    }

    /// Takes back the last message, which was refused.
    pub(super) fn refused(&self, producer: u8) {
        self.producers[usize::from(producer)].accepted.fetch_sub(1, SeqCst);
    }

    pub(super) fn confirmed(&self, producer: u8, number: u32) {
        self.producers[usize::from(producer)].confirmed.fetch_max(number + 1, SeqCst);
    }

    /// # Errors
    /// The message is not the next one, or was never written.
    pub(super) fn received(&self, producer: u8, number: u32) -> Result<(), String> {
        let Some(of) = self.producers.get(usize::from(producer)) else {
            return Err(format!("a message of producer {producer}, which does not exist"));
        };
        let expected = of.received.load(SeqCst);
        let may_skip = self.drops_messages.load(SeqCst);
        if number != expected && !(may_skip && number > expected) {
            return Err(format!("message {number} of producer {producer}, expected {expected}"));
        }
        of.received.store(number + 1, SeqCst);
        Ok(())
    }

    /// Returns the accepted messages that have not arrived.
    pub(super) fn missing(&self) -> Option<String> {
        self.find("accepted", |producer| producer.accepted.load(SeqCst))
    }

    /// Returns the confirmed messages that have not arrived.
    pub(super) fn missing_confirmed(&self) -> Option<String> {
        self.find("confirmed", |producer| producer.confirmed.load(SeqCst))
    }

    fn find(&self, what: &str, promised: impl Fn(&Producer) -> u32) -> Option<String> {
        if self.drops_messages.load(SeqCst) {
            return None;
        }
        self.producers.iter().enumerate().find_map(|(number, producer)| {
            let (received, promised) = (producer.received.load(SeqCst), promised(producer));
            let text =
                || format!("{received} of {promised} {what} messages of producer {number} have arrived");
            (received < promised).then(text)
        })
    }
}
