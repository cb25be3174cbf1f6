//! The state that the producers of a channel share with its loop: the write gauge, the size
//! estimates of queued messages, the waiters for writability, and the number of unanswered writes.
//!
//! Invariants: a message counts in the gauge from before it is queued until the loop has handled it
//! ([`WriteGauge`]), or its [`Reservation`](super::reservation::Reservation) is dropped. A waiter
//! is notified once. Any thread reserves; [`Producers::update`] runs on the channel's loop.

use super::{
    pipeline_types::SizeHint,
    write_permit::{Grant, WritePermit},
};
use crate::{
    buffer::{ENTRY_OVERHEAD, WaterMark},
    channel::config::{ChannelConfig, Overflow},
    error::{Error, Resource, Result},
    sync::{
        Awaited, Completer, Completion, Locked, MessageWeight, ReservedWeight, Waiters, WriteGauge,
        completion,
    },
};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Producers {
    gauge: WriteGauge,
    /// The weight beyond which a handle refuses a message.
    limit: usize,
    size_hint: SizeHint,
    /// The length of the channel's longest recent message; 0 before the first.
    typical: AtomicUsize,
    /// Writes through [`write_tracked`](super::Channel::write_tracked) that are not answered yet.
    unconfirmed: AtomicUsize,
    waiting: Locked<Waiters<WaitingProducer>>,
}

struct WaitingProducer {
    completer: Completer,
    grant: Grant,
}

impl Awaited for WaitingProducer {
    fn is_awaited(&self) -> bool {
        self.completer.is_awaited()
    }
}

impl Producers {
    pub(in crate::channel) fn new(config: &ChannelConfig, size_hint: SizeHint) -> Self {
        Producers {
            gauge: WriteGauge::new(config.water_mark),
            limit: if config.overflow == Overflow::Refuse { config.max_outbound } else { usize::MAX },
            size_hint,
            typical: AtomicUsize::new(0),
            unconfirmed: AtomicUsize::new(0),
            waiting: Locked::default(),
        }
    }

    /// Takes over the state of a channel that did not have handles.
    pub(in crate::channel) fn begin(&self, weight: usize, writable: bool) {
        self.gauge.begin(weight, writable);
    }

    #[inline]
    pub(in crate::channel) fn is_writable(&self) -> bool {
        self.gauge.is_writable()
    }

    // ---- queued messages ------------------------------------------------------------------------

    /// Returns the function that estimates the size of messages of the channel's first pipeline.
    pub(in crate::channel) fn size_hint(&self) -> SizeHint {
        self.size_hint
    }

    /// Reserves the weight of a message of this size, which counts from now on.
    ///
    /// # Errors
    /// [`Error::Full`] if the message lacks a permit, the channel is not writable, and the message
    /// does not fit into the channel's limit.
    #[inline]
    pub(super) fn reserve(&self, size: Option<usize>, permit: bool) -> Result<ReservedWeight> {
        let typical = self.typical.load(Ordering::Relaxed);
        let weight = size.unwrap_or(typical).saturating_add(ENTRY_OVERHEAD);
        let weight = if size.is_none() && typical == 0 {
            MessageWeight::AtLeast(weight)
        } else {
            MessageWeight::Known(weight)
        };
        self.gauge.reserve(weight, permit, self.limit).ok_or_else(|| self.is_full())
    }

    #[cold]
    fn is_full(&self) -> Error {
        Error::Full { resource: Resource::ChannelOutput, limit: self.limit }
    }

    /// Gives back the reservation of a message that the loop will never take. Returns whether the
    /// loop must be requested to check the gauge.
    #[must_use = "the loop must check the gauge"]
    pub(super) fn release(&self, weight: u32) -> bool {
        self.gauge.release(weight)
    }

    /// Records that the loop has taken a queued message. It counts until the next
    /// [`Producers::update`]. Runs on the loop.
    #[inline]
    pub(in crate::channel) fn take(&self, weight: u32) {
        self.gauge.take(weight);
    }

    /// Records that the loop has received the request for a check. Runs on the loop.
    pub(in crate::channel) fn checked(&self) {
        self.gauge.checked();
    }

    /// Records the encoded length of a message, which estimates later messages of unknown size.
    /// Runs on the loop.
    pub(in crate::channel) fn note_encoded(&self, len: usize) {
        let before = self.typical.load(Ordering::Relaxed);
        let typical = len.max(before - before / 8).max(1);
        if typical != before {
            self.typical.store(typical, Ordering::Relaxed);
        }
    }

    // ---- on the loop ----------------------------------------------------------------------------

    /// See [`WriteGauge::is_settled`].
    #[inline]
    pub(in crate::channel) fn is_settled(&self, buffered: usize) -> bool {
        self.gauge.is_settled(buffered)
    }

    #[inline]
    pub(in crate::channel) fn would_be_writable(&self, buffered: usize, mark: WaterMark) -> bool {
        self.gauge.would_be_writable(buffered, mark)
    }

    /// Publishes the weight of the buffer and subtracts the messages that the loop has handled. See
    /// [`WriteGauge::update`].
    #[inline]
    pub(in crate::channel) fn update(&self, buffered: usize, mark: WaterMark, was: bool) -> bool {
        self.gauge.update(buffered, mark, was)
    }

    // ---- waiting for writability ----------------------------------------------------------------

    /// Returns a completion that completes when the channel is writable, with a permit. Fails once
    /// `takes_writes` returns `false`.
    pub(super) fn writable(
        &self,
        event_loop: u32,
        permit: &WritePermit,
        takes_writes: impl Fn() -> bool,
    ) -> Completion {
        // Checked under the lock. Code that changes either state takes the lock afterwards to
        // notify.
        let waits = self.waiting.change(|waiting| {
            if !takes_writes() {
                return (Err(Error::Closed), None);
            }
            if self.gauge.is_writable() {
                return (Ok(None), None);
            }
            let (completer, completion) = completion(Some(event_loop));
            let dropped = waiting.push(WaitingProducer { completer, grant: permit.grant_later() });
            (Ok(Some(completion)), Some(dropped))
        });
        match waits {
            Ok(Some(completion)) => completion,
            Ok(None) => {
                permit.give();
                Completion::ready(Ok(()))
            }
            Err(reason) => Completion::ready(Err(reason)),
        }
    }

    /// Completes the waiters because the channel is writable. Runs on the loop.
    pub(in crate::channel) fn notify(&self) {
        for WaitingProducer { completer, grant } in self.take_waiters() {
            if completer.is_awaited() {
                grant.give();
            }
            completer.complete(Ok(()));
        }
    }

    /// Fails the waiters because the output has ended.
    pub(in crate::channel) fn end(&self) {
        for WaitingProducer { completer, .. } in self.take_waiters() {
            completer.complete(Err(Error::Closed));
        }
    }

    fn take_waiters(&self) -> Vec<WaitingProducer> {
        self.waiting.change(|waiting| (waiting.take(), ()))
    }

    // ---- unconfirmed writes ---------------------------------------------------------------------

    /// Counts an unconfirmed write.
    ///
    /// # Errors
    /// [`Error::Full`] if the limit of unconfirmed writes is reached.
    pub(in crate::channel) fn begin_unconfirmed(&self) -> Result {
        if self.unconfirmed.fetch_add(1, Ordering::Relaxed) < MAX_UNCONFIRMED {
            return Ok(());
        }
        self.end_unconfirmed(1);
        Err(Error::Full { resource: Resource::PendingWrites, limit: MAX_UNCONFIRMED })
    }

    /// Counts writes of the channel's own handler, which has a separate limit.
    pub(in crate::channel) fn add_unconfirmed(&self, writes: usize) {
        self.unconfirmed.fetch_add(writes, Ordering::Relaxed);
    }

    pub(in crate::channel) fn end_unconfirmed(&self, writes: usize) {
        self.unconfirmed.fetch_sub(writes, Ordering::Relaxed);
    }
}

/// The limit of unconfirmed writes of a channel.
pub(crate) const MAX_UNCONFIRMED: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::config::ChannelOptions;

    fn producers() -> Producers {
        let config = ChannelOptions::new().build().expect("the defaults are valid");
        Producers::new(&config, |_| None)
    }

    /// Async code that races `writable` with a timeout calls it repeatedly and drops each
    /// completion.
    #[test]
    fn dropped_waiters_are_removed() {
        let producers = producers();
        producers.reserve(Some(100_000), true).expect("a permit");
        let (awaited, given_up) = (WritePermit::default(), WritePermit::default());
        let kept: Vec<_> = (0..10).map(|_| producers.writable(0, &awaited, || true)).collect();
        for _ in 0..10_000 {
            drop(producers.writable(0, &given_up, || true));
            assert!(producers.waiting.read(Waiters::len) < 50);
        }
        assert!(!awaited.take(), "the permit is granted on completion");
        producers.notify();
        assert!(awaited.take() && !awaited.take() && !given_up.take());
        assert!(kept.into_iter().all(|completion| completion.wait().is_ok()));
    }

    #[test]
    fn messages_of_unknown_size_count_as_the_longest_recent_one() {
        let producers = producers();
        let first = producers.reserve(None, false).expect("nothing is queued");
        assert_eq!(first.weight, 64 * 1024 + 1, "producers pause after it");
        producers.take(first.weight);
        assert!(producers.update(900, WaterMark::default(), true));
        producers.note_encoded(800);
        let weight = |producers: &Producers| producers.reserve(None, false).expect("room").weight as usize;
        assert_eq!(weight(&producers), 800 + ENTRY_OVERHEAD);
        producers.note_encoded(100);
        assert_eq!(weight(&producers), 700 + ENTRY_OVERHEAD, "it decays");
    }
}
