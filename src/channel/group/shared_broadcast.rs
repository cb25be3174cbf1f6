//! One message for many channels: the part that all loops share, and the delivery to each of them.
//!
//! The first member that needs an encoding makes it, outside its own buffer. It serves all channels
//! whose links have the same types and the same key of settings (`encoding_key`), on any loop. A
//! loop that needs an encoding in progress waits for it. The lock is taken once per loop and kind
//! of encoder, not once per member. Each member then handles the message like a write of its own:
//! limit, overflow policy, pending writes and water marks apply.
//!
//! A member without room refuses the message. Its handler receives an error, as for a write through
//! a handle. A message that cannot be encoded is counted in the report and logged, without an error
//! for the handler.
//!
//! Invariants: a loop gets one [`Delivery`] of a broadcast. Each member is counted once, also if
//! the loop ends before it is reached: a dropped delivery counts the remaining members. A message
//! is encoded once for all channels that encode alike. A delivery runs on its loop; the message is
//! shared.

use super::{
    Broadcast,
    members::{Part, Permitted},
    report::{BroadcastReport, Progress},
    waiting::WaitingDeliveries,
};
use crate::{
    Error, Result, SendError,
    channel::{
        core::{ChannelCore, Outcome},
        handle::{AnyDelivery, WriteTicket},
        links::{Encoder, EncodingMemo, SharedMessage, again},
        services::LoopServices,
    },
    error::caught,
    id::{ChannelId, Key},
    log_throttle::{BROADCASTS, LogAt, LogThrottle, log_throttled},
};
use bytes::Bytes;
use log::Level;
use std::{
    any::{Any, type_name},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, PoisonError},
};

/// The recipients of a broadcast.
pub(super) struct Sending {
    pub(super) parts: Arc<[Part]>,
    pub(super) members: usize,
    /// A member that does not receive it.
    pub(super) except: Option<ChannelId>,
    /// The group's deliveries in progress, among which this broadcast counts.
    pub(super) waiting: Arc<WaitingDeliveries>,
}

/// A message for many channels, its encodings and its progress.
pub(super) struct SharedBroadcast<M> {
    message: M,
    sending: Sending,
    /// The encodings by encoder.
    encodings: Mutex<Vec<(Encoder, Result<Bytes>)>>,
    progress: Arc<Progress>,
}

/// A broadcast whose message type is erased.
trait AnyParcel: SharedMessage + Send + Sync {
    fn sending(&self) -> &Sending;
    fn progress(&self) -> &Progress;
    fn message_type(&self) -> &'static str;
}

impl<M: Clone + Send + Sync + 'static> SharedBroadcast<M> {
    pub(super) fn new(message: M, sending: Sending) -> Self {
        let progress = Arc::new(Progress::new(sending.parts.len(), sending.waiting.clone()));
        SharedBroadcast { message, sending, encodings: Mutex::default(), progress }
    }

    /// Sends a delivery to each loop.
    ///
    /// # Errors
    /// Returns the message if no loop accepts its delivery.
    pub(super) fn send(self, entitled: &[Permitted<M>]) -> Result<Broadcast, SendError<M>> {
        let shared_broadcast = Arc::new(self);
        let Sending { parts, members, .. } = &shared_broadcast.sending;
        let (members, loops) = (*members, parts.iter().map(|part| part.event_loop).collect());
        let (mut unreached, mut refused, mut reason) = (0, 0, None);
        for (at, part) in parts.iter().enumerate() {
            let delivery = Delivery::new(shared_broadcast.clone(), at);
            match part.outlet.broadcast(Box::new(delivery)) {
                // Added after the submission, like every queued message.
                Ok(()) => entitled.iter().filter(|member| member.part == at).for_each(Permitted::add),
                Err((delivery, why)) => {
                    unreached += Delivery::from_any(delivery).report.members;
                    refused += 1;
                    reason = Some(why);
                }
            }
        }
        let progress = shared_broadcast.progress.clone();
        if let Some(reason) = reason
            && refused == parts.len()
        {
            match Arc::try_unwrap(shared_broadcast) {
                Ok(shared_broadcast) => return Err(SendError::new(shared_broadcast.message, reason)),
                // Deliveries hold the only other references, and all were dropped.
                Err(_) => unreachable!("a refused parcel has no other owner"),
            }
        }
        Ok(Broadcast { members, loops, unreached, progress })
    }
}

impl<M: Clone + Send + Sync + 'static> SharedMessage for SharedBroadcast<M> {
    fn clone_into(&self, place: &mut dyn Any) {
        if let Some(place) = place.downcast_mut::<Option<M>>() {
            *place = Some(self.message.clone());
        }
    }

    fn encoded(&self, encoder: Encoder, encode: &mut dyn FnMut() -> Result<Bytes>) -> Result<Bytes> {
        // Held while encoding: other loops wait for the encoding instead of repeating it.
        let mut encodings = self.encodings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, made)) = encodings.iter().find(|(by, _)| *by == encoder) {
            return again(made);
        }
        let (made, panic) = match catch_unwind(AssertUnwindSafe(encode)) {
            Ok(made) => (made, None),
            Err(panic) => (Err(Error::panicked("encoding a broadcast")), Some(panic)),
        };
        encodings.push((encoder, again(&made)));
        drop(encodings);
        if let Some(panic) = panic {
            // The panic closes this channel only.
            resume_unwind(panic);
        }
        made
    }
}

impl<M: Clone + Send + Sync + 'static> AnyParcel for SharedBroadcast<M> {
    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn message_type(&self) -> &'static str {
        type_name::<M>()
    }
}

/// The part of a broadcast for one loop.
pub(crate) struct Delivery {
    shared_broadcast: Arc<dyn AnyParcel>,
    /// The members on this loop.
    keys: Arc<[Key]>,
    /// The ticket of the message for each of them.
    tickets: Option<Arc<[Option<WriteTicket>]>>,
    /// The next member.
    next: usize,
    except: Option<Key>,
    memo: EncodingMemo,
    report: BroadcastReport,
    /// The first encoding error, and the rate limit and time for logging it.
    failed: Option<(Error, Arc<LogThrottle>, u64)>,
}

impl Delivery {
    /// Returns the delivery that was passed to
    /// [`MailSender::broadcast`](crate::channel::MailSender::broadcast), which names no type of
    /// this layer.
    pub(crate) fn from_any(delivery: Box<AnyDelivery>) -> Box<Delivery> {
        delivery.downcast().expect("the mail is a `Delivery`")
    }

    fn new(shared_broadcast: Arc<dyn AnyParcel>, part: usize) -> Self {
        let Sending { parts, except, .. } = shared_broadcast.sending();
        let Part { event_loop, keys, tickets, .. } = &parts[part];
        let except = except.filter(|id| id.event_loop == *event_loop).map(|id| id.key);
        let (keys, members) = (keys.clone(), keys.len() - usize::from(except.is_some()));
        let report = BroadcastReport { members, ..BroadcastReport::default() };
        let tickets = tickets.clone();
        Delivery {
            shared_broadcast,
            keys,
            tickets,
            next: 0,
            except,
            memo: EncodingMemo::default(),
            report,
            failed: None,
        }
    }

    /// Returns the next member, or `None` after the last one.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Key> {
        loop {
            let key = *self.keys.get(self.next)?;
            self.next += 1;
            if self.except != Some(key) {
                return Some(key);
            }
        }
    }

    /// Returns an identifier of the group, unique while a broadcast of it is in progress.
    pub(crate) fn group(&self) -> usize {
        Arc::as_ptr(&self.shared_broadcast.sending().waiting).addr()
    }

    /// Returns the remaining members.
    pub(crate) fn rest(&self) -> impl Iterator<Item = Key> {
        self.keys[self.next.min(self.keys.len())..].iter().copied().filter(|key| self.except != Some(*key))
    }

    /// Returns whether this member has not been reached yet.
    pub(crate) fn is_for(&self, key: Key) -> bool {
        self.except != Some(key) && self.keys[self.next.min(self.keys.len())..].contains(&key)
    }

    /// Returns whether all members were reached.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.keys.len()
    }

    /// Writes the message to the member that [`next`](Delivery::next) has returned.
    #[inline]
    pub(crate) fn write_to(&mut self, core: &mut ChannelCore, services: &mut LoopServices) {
        let ticket = self.tickets.as_ref().and_then(|tickets| tickets[self.next - 1]);
        let outcome = core.handle_broadcast(services, &*self.shared_broadcast, &mut self.memo, ticket);
        services.tally.broadcast_encodings += std::mem::take(&mut self.memo.encodings);
        self.count(services, outcome);
    }

    /// Counts the result for a member.
    #[inline]
    pub(crate) fn count(&mut self, services: &mut LoopServices, outcome: Outcome) {
        services.tally.deliveries += 1;
        let report = &mut self.report;
        match outcome {
            Outcome::Written => report.written += 1,
            Outcome::Dropped => report.dropped += 1,
            Outcome::Refused => report.refused += 1,
            Outcome::Closed => report.closed += 1,
            Outcome::Gone => report.gone += 1,
            Outcome::Failed(error) => {
                report.failed += 1;
                if self.failed.is_none() {
                    self.failed = error.map(|error| (error, services.log.clone(), services.now));
                }
            }
        }
    }
}

impl Drop for Delivery {
    /// Counts the remaining members, so that the report completes in any case.
    fn drop(&mut self) {
        self.report.unreached += self.report.members - self.report.counted();
        if let Some((error, log, now)) = &self.failed {
            let (n, message) = (self.report.failed, self.shared_broadcast.message_type());
            let at = LogAt { log, now: *now };
            // The program's logger may panic.
            caught(|| {
                log_throttled!(
                    at,
                    BROADCASTS,
                    Level::Warn,
                    "a broadcast of {message} could not be encoded for {n} channels: {error:#}"
                );
            });
        }
        self.shared_broadcast.progress().end_part(&self.report);
    }
}
