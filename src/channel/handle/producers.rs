//! The state that the producers of a channel share with its loop: the write gauge, the size
//! estimates of queued messages, the waiters for writability, and the number of unanswered writes.
//!
//! Invariants: a ticket is added to the gauge after its message was queued. The loop subtracts it
//! after handling the message, in the same step in which it publishes the weight of the buffer. A
//! waiter is notified once. Any thread adds; [`Producers::settle`] runs on the channel's loop.

use super::{
    mail::WriteTicket,
    pipeline_types::SizeHint,
    write_permit::{Grant, WritePermit},
};
use crate::{
    Error, Result,
    buffer::{ENTRY_OVERHEAD, WaterMark},
    channel::config::{ChannelConfig, Overflow},
    error::Resource,
    sync::{CalmWeight, Completer, Completion, WriteGauge, completion},
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// The gauge may lag behind the buffer by this fraction of the high mark, so that a small write and
/// its flush do not touch it. Handles see the channel unwritable earlier by the same amount.
const SLACK: usize = 16;

/// High marks below which the gauge is exact.
const EXACT_BELOW: usize = 16 * 1024;

/// The number of waiters from which on dropped ones are removed.
const PRUNE_FROM: usize = 16;

pub(crate) struct Producers {
    gauge: WriteGauge,
    /// Above this weight the channel is not writable.
    high: usize,
    /// The weight beyond which a handle refuses a message.
    limit: usize,
    size_hint: SizeHint,
    /// The part of the gauge's weight that stands for the buffer and for tickets that the loop has
    /// taken. Written on the loop only.
    known: AtomicUsize,
    /// The largest difference that is not published to the gauge.
    slack: usize,
    /// Below this weight a buffer within three quarters of the marks cannot reach them.
    calm: CalmWeight,
    /// The length of the channel's longest recent message; 0 before the first.
    typical: AtomicUsize,
    /// Writes through [`write_tracked`](super::Channel::write_tracked) that are not answered yet.
    unconfirmed: AtomicUsize,
    waiting: Mutex<WaitingProducers>,
}

#[derive(Default)]
struct WaitingProducers {
    waiters: Vec<WaitingProducer>,
    /// The number of them at which the list is pruned.
    prune_at: usize,
}

struct WaitingProducer {
    completer: Completer,
    grant: Grant,
}

impl Producers {
    pub(in crate::channel) fn new(config: &ChannelConfig, size_hint: SizeHint) -> Self {
        let high = config.water_mark.high();
        let slack = if high < EXACT_BELOW { 0 } else { high / SLACK };
        Producers {
            gauge: WriteGauge::default(),
            high: config.water_mark.high() - slack,
            limit: if config.overflow == Overflow::Refuse { config.max_outbound } else { usize::MAX },
            size_hint,
            known: AtomicUsize::new(0),
            slack,
            calm: CalmWeight::new(high / 8),
            typical: AtomicUsize::new(0),
            unconfirmed: AtomicUsize::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Takes over the state of a channel that did not have handles.
    pub(in crate::channel) fn begin(&self, weight: usize, writable: bool) {
        self.known.store(weight, Ordering::Relaxed);
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

    /// Decides whether a message of this size may be queued.
    ///
    /// # Errors
    /// If it lacks a permit, the channel is not writable, and the message does not fit into the
    /// channel's limit.
    pub(in crate::channel) fn admit(&self, size: Option<usize>, permit: bool) -> Result<WriteTicket> {
        let typical = self.typical.load(Ordering::Relaxed);
        let weight = size.unwrap_or(typical).saturating_add(ENTRY_OVERHEAD);
        let admitted = permit || self.gauge.has_room();
        if !admitted && self.gauge.weight().saturating_add(weight) > self.limit {
            return Err(Error::Full { resource: Resource::ChannelOutput, limit: self.limit });
        }
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        Ok(WriteTicket { weight, admitted, pauses: size.is_none() && typical == 0 })
    }

    /// Records that the message with this ticket has been queued.
    #[inline]
    pub(in crate::channel) fn add(&self, ticket: WriteTicket) {
        self.gauge.add(ticket.weight as usize, if ticket.pauses { 0 } else { self.high });
    }

    /// Records that the loop has taken the message. It counts until the next [`Producers::settle`].
    /// Runs on the loop.
    pub(in crate::channel) fn take(&self, ticket: WriteTicket) {
        self.known.store(self.known.load(Ordering::Relaxed) + ticket.weight as usize, Ordering::Relaxed);
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

    /// Returns the difference between a buffer of this weight and the published weight.
    #[inline]
    fn delta(&self, weight: usize) -> isize {
        weight.wrapping_sub(self.known.load(Ordering::Relaxed)) as isize
    }

    /// Returns whether nothing has to be published or notified for a buffer of this weight, which
    /// must be within three quarters of the high mark. A hint: `false` requires a closer look.
    #[inline]
    pub(in crate::channel) fn is_settled(&self, weight: usize) -> bool {
        self.delta(weight).unsigned_abs() <= self.slack && self.gauge.is_calm(self.calm)
    }

    #[inline]
    pub(in crate::channel) fn would_be_writable(&self, weight: usize, mark: WaterMark) -> bool {
        self.gauge.would_be_writable(self.delta(weight), mark)
    }

    /// Publishes the weight of the buffer and subtracts the messages that the loop has handled. See
    /// [`WriteGauge::settle`].
    #[inline]
    pub(in crate::channel) fn settle(&self, weight: usize, mark: WaterMark, was: bool) -> bool {
        let delta = self.delta(weight);
        if delta != 0 {
            self.known.store(weight, Ordering::Relaxed);
        }
        self.gauge.settle(delta, mark, was)
    }

    // ---- waiting for writability ----------------------------------------------------------------

    fn waiting(&self) -> std::sync::MutexGuard<'_, WaitingProducers> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a completion that completes when the channel is writable, with a permit. Fails once
    /// `takes_writes` returns `false`.
    pub(super) fn writable(
        &self,
        event_loop: u32,
        permit: &WritePermit,
        takes_writes: impl Fn() -> bool,
    ) -> Completion {
        let mut waiting = self.waiting();
        // Checked under the lock. Code that changes either state takes the lock afterwards to
        // notify.
        if !takes_writes() {
            return Completion::ready(Err(Error::Closed));
        }
        if self.gauge.is_writable() {
            permit.give();
            return Completion::ready(Ok(()));
        }
        let (completer, completion) = completion(Some(event_loop));
        waiting.push(WaitingProducer { completer, grant: permit.grant_later() });
        completion
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
        std::mem::take(&mut self.waiting().waiters)
    }

    // ---- unconfirmed writes ---------------------------------------------------------------------

    /// Counts an unconfirmed write.
    ///
    /// # Errors
    /// If the limit of unconfirmed writes is reached.
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

impl WaitingProducers {
    fn push(&mut self, waiter: WaitingProducer) {
        if self.waiters.len() >= self.prune_at.max(PRUNE_FROM) {
            // Async code may call `writable` repeatedly and drop each completion.
            self.waiters.retain(|waiter| waiter.completer.is_awaited());
            self.prune_at = self.waiters.len() * 2;
        }
        self.waiters.push(waiter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ChannelOptions;

    fn producers() -> Producers {
        let config = ChannelOptions::new().build().expect("the defaults are valid");
        Producers::new(&config, |_| None)
    }

    /// Async code that races `writable` with a timeout calls it repeatedly and drops each
    /// completion.
    #[test]
    fn dropped_waiters_are_removed() {
        let producers = producers();
        producers.add(WriteTicket { weight: 100_000, admitted: true, pauses: false });
        let (awaited, given_up) = (WritePermit::default(), WritePermit::default());
        let kept: Vec<_> = (0..10).map(|_| producers.writable(0, &awaited, || true)).collect();
        for _ in 0..10_000 {
            drop(producers.writable(0, &given_up, || true));
            assert!(producers.waiting().waiters.len() <= 2 * PRUNE_FROM);
        }
        assert!(!awaited.take(), "the permit is granted on completion");
        producers.notify();
        assert!(awaited.take() && !awaited.take() && !given_up.take());
        assert!(kept.into_iter().all(|completion| completion.wait().is_ok()));
    }

    #[test]
    fn messages_of_unknown_size_count_as_the_longest_recent_one() {
        let producers = producers();
        let first = producers.admit(None, false).expect("nothing is queued");
        assert_eq!((first.weight as usize, first.pauses), (ENTRY_OVERHEAD, true));
        producers.note_encoded(800);
        assert_eq!(producers.admit(None, false).expect("room").weight as usize, 800 + ENTRY_OVERHEAD);
        producers.note_encoded(100);
        let later = producers.admit(None, false).expect("room");
        assert_eq!((later.weight as usize, later.pauses), (700 + ENTRY_OVERHEAD, false), "it decays");
    }
}
