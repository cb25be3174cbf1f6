//! Broadcasts that arrived through the loop's queue.
//!
//! A turn writes to at most 4096 members, over all broadcasts. With an `io_ratio` below 100 it also
//! stops after `max_task_time`. Waiting broadcasts use up to half of the number before the queue,
//! and the remainder after it. The limit is a number and not the budget of tasks. That budget would
//! often end a turn in the middle of a group, and each member would then receive each message with
//! a separate write. Within a turn, the messages of several broadcasts to one channel leave with
//! one write.
//!
//! Invariants: a broadcast is delivered immediately if no other one is waiting. The deliveries that
//! exceed the limit of the turn wait in the lane of their group (`broadcast::lanes`), and the loop
//! continues with its queue. Mail for a channel never overtakes an earlier broadcast to it: those
//! deliveries are made first. If the turn has no room for them, the mail is held back and blocks
//! the queue. So the requests of one thread to a group and to its members stay in order. Runs on
//! the loop's thread. A delivery knows its members, the loop knows their channels.

use super::Turn;
use crate::{
    channel::{Delivery, Recipient},
    error::drop_guarded,
    event_loop::{broadcast::Broadcasts, io::Io, mail::LoopMail, sources::Sources},
    id::Key,
    metrics::Metrics,
};

/// The maximum number of channels that the broadcasts of one turn write to. Most of the time goes
/// into flushing them: a few milliseconds for this many. A higher limit would combine more messages
/// per write, but delay everything else.
const DELIVERIES_PER_TURN: usize = 4096;

/// The part of [`DELIVERIES_PER_TURN`] that waiting broadcasts may use before the queue. The other
/// part is kept for deliveries out of turn, which mail in the queue causes, and for waiting
/// broadcasts after the queue.
const BEFORE_THE_QUEUE: usize = DELIVERIES_PER_TURN / 2;

impl Turn {
    /// Begins a turn's share: delivers some of the waiting broadcasts, then handles held mail.
    /// Returns the number of messages handled.
    pub(super) fn begin_broadcasts(&mut self) -> u64 {
        (self.broadcasts.left, self.broadcasts.taken) = (DELIVERIES_PER_TURN, 0);
        self.broadcasts.until = self.budget.cap_until(self.io.services.now);
        if !self.broadcasts.is_waiting() {
            return 0;
        }
        self.deliver_waiting(DELIVERIES_PER_TURN - BEFORE_THE_QUEUE);
        let Some(mail) = self.broadcasts.held.take() else { return 0 };
        self.guarded_mail(mail);
        u64::from(!self.broadcasts.holds_queue())
    }

    /// Delivers waiting broadcasts up to the limit of the turn, after its tasks. Returns whether
    /// any broadcast was waiting.
    pub(super) fn end_broadcasts(&mut self) -> bool {
        if self.broadcasts.lanes.is_empty() {
            return false;
        }
        self.deliver_waiting(0);
        if !self.broadcasts.lanes.is_empty() {
            self.shared.metrics.broadcasts_deferred.add(1);
        }
        true
    }

    /// Delivers all waiting broadcasts because the loop ends. Later broadcasts are delivered
    /// immediately.
    pub(super) fn deliver_without_limit(&mut self) {
        (self.broadcasts.left, self.broadcasts.until) = (usize::MAX, None);
        self.deliver_waiting(0);
        if let Some(mail) = self.broadcasts.held.take() {
            self.guarded_mail(mail);
        }
    }

    fn guarded_mail(&mut self, mail: LoopMail) {
        self.guarded_once(mail.source(), |turn| turn.handle_mail(mail));
    }

    /// Takes a broadcast from the queue.
    pub(super) fn begin_broadcast(&mut self, delivery: Box<Delivery>) {
        self.shared.metrics.broadcasts.add(1);
        self.broadcasts.taken += 1;
        if !self.broadcasts.lanes.is_empty() {
            // In turn with other groups, and after earlier broadcasts of its own group.
            self.broadcasts.lanes.push(delivery);
            return;
        }
        self.broadcasts.at_once = Some(delivery);
        self.deliver_in_batches(0, |broadcasts| {
            let delivery = broadcasts.at_once.as_mut()?;
            Some((delivery.next()?, &mut **delivery))
        });
        let Some(delivery) = self.broadcasts.at_once.take() else { return };
        if delivery.is_done() {
            drop_guarded(delivery);
        } else {
            self.broadcasts.lanes.push(delivery);
        }
    }

    /// Delivers waiting broadcasts until only `leaving` deliveries are left in this turn.
    fn deliver_waiting(&mut self, leaving: usize) {
        while self.broadcasts.left > leaving && !self.broadcasts.lanes.is_empty() {
            self.deliver_in_batches(leaving, |broadcasts| broadcasts.lanes.next());
            if let Some(finished) = self.broadcasts.lanes.take_finished() {
                drop_guarded(finished);
            }
        }
    }

    /// Makes the deliveries that `next` returns, until it returns `None` or only `leaving` are left
    /// in this turn. Reads the clock between batches, and ends the turn's share when its time is
    /// up.
    fn deliver_in_batches(
        &mut self,
        leaving: usize,
        mut next: impl FnMut(&mut Broadcasts) -> Option<(Recipient, &mut Delivery)>,
    ) {
        loop {
            let batch = if self.broadcasts.until.is_some() { self.deliver_pace.batch() } else { u64::MAX };
            let mut made = 0;
            self.guarded(|turn, current| {
                let Turn { broadcasts, sources, io, shared, .. } = turn;
                while broadcasts.left > leaving && made < batch {
                    let Some((recipient, delivery)) = next(broadcasts) else { break };
                    made += 1;
                    *current = Some(recipient.key());
                    deliver(delivery, recipient, sources, io, &shared.metrics);
                    broadcasts.left -= 1;
                }
            });
            if made < batch || self.broadcasts.until.is_none() {
                return;
            }
            let before = self.io.services.now;
            self.lap_in_span();
            self.deliver_pace.measured(made, self.io.services.now - before);
            if self.broadcasts.until.is_some_and(|until| self.io.services.now >= until) {
                self.broadcasts.left = self.broadcasts.left.min(leaving);
            }
        }
    }

    /// Makes all waiting deliveries to a channel, out of turn. Returns `false` if this turn has no
    /// room for all of them.
    #[inline]
    pub(super) fn catch_up(&mut self, key: Key) -> bool {
        !self.broadcasts.lanes.has_for(key) || self.deliver_to(key)
    }

    #[cold]
    fn deliver_to(&mut self, key: Key) -> bool {
        for waiting in self.broadcasts.lanes.waiting_for(key) {
            let Turn { broadcasts, sources, io, shared, .. } = self;
            if broadcasts.left == 0 {
                return false;
            }
            broadcasts.left -= 1;
            if let Some((recipient, delivery)) = broadcasts.lanes.take_for(waiting) {
                deliver(delivery, recipient, sources, io, &shared.metrics);
            }
        }
        true
    }

    /// Holds back mail whose channel has to catch up first. The queue waits until it is handled.
    #[cold]
    pub(super) fn hold(&mut self, mail: LoopMail) {
        self.broadcasts.held = Some(mail);
    }
}

#[inline(always)]
fn deliver(
    delivery: &mut Delivery,
    recipient: Recipient,
    sources: &mut Sources,
    io: &mut Io,
    metrics: &Metrics,
) {
    match sources.channel(recipient.key()) {
        Some(slot) => {
            slot.call(io, metrics, |core, services| core.handle_delivery(services, delivery, recipient));
        }
        None => {
            io.services.tally.deliveries += 1;
            delivery.skip(recipient);
        }
    }
}
