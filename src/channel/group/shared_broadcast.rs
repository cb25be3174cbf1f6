//! One message for many channels: what all loops share of it, and what goes to each of them.
//!
//! Always holds: a loop gets one [`Delivery`] of a broadcast; each of its members is counted once, also where the loop ends
//! before it came to them; a message is encoded once for all channels that encode alike, on whatever loop. A loop that needs an
//! encoding which another one is making waits for it. A delivery runs on its loop; the parcel is shared.

use super::{
    Broadcast,
    members::{Part, Permitted},
    report::{BroadcastReport, Progress},
    waiting::WaitingDeliveries,
};
use crate::{
    Error, Refused, Result,
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

/// To whom a message goes.
pub(super) struct Sending {
    pub(super) parts: Arc<[Part]>,
    pub(super) members: usize,
    /// One of the members, whom it is not for.
    pub(super) except: Option<ChannelId>,
    /// What the group has under way; this broadcast is counted there.
    pub(super) waiting: Arc<WaitingDeliveries>,
}

/// A message, and what became of it so far.
pub(super) struct SharedBroadcast<M> {
    message: M,
    sending: Sending,
    /// What encoders of each kind have made of it.
    encodings: Mutex<Vec<(Encoder, Result<Bytes>)>>,
    progress: Arc<Progress>,
}

/// A parcel whose message type is forgotten.
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

    /// Gives it to the loops.
    ///
    /// # Errors
    /// The message comes back if no loop takes it.
    pub(super) fn send(self, entitled: &[Permitted<M>]) -> Result<Broadcast, Refused<M>> {
        let shared_broadcast = Arc::new(self);
        let Sending { parts, members, .. } = &shared_broadcast.sending;
        let (members, loops) = (*members, parts.iter().map(|part| part.event_loop).collect());
        let (mut unreached, mut refused, mut reason) = (0, 0, None);
        for (at, part) in parts.iter().enumerate() {
            let delivery = Delivery::new(shared_broadcast.clone(), at);
            match part.outlet.broadcast(Box::new(delivery)) {
                // Behind the submission, as for every message that is queued.
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
                Ok(shared_broadcast) => return Err(Refused { value: shared_broadcast.message, reason }),
                // Not without a delivery, and these were dropped.
                Err(_) => unreachable!("nobody else has a parcel that no loop took"),
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
        // Held while it is encoded: who needs the same waits for it, instead of doing it again.
        let mut encodings = self.encodings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, made)) = encodings.iter().find(|(by, _)| *by == encoder) {
            return again(made);
        }
        let (made, panic) = match catch_unwind(AssertUnwindSafe(encode)) {
            Ok(made) => (made, None),
            Err(panic) => (Err(Error::Panicked("encoding a broadcast".to_owned())), Some(panic)),
        };
        encodings.push((encoder, again(&made)));
        drop(encodings);
        if let Some(panic) = panic {
            // It is that channel's, and closes it. The others have nothing to do with it.
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

/// What one loop has to do for a broadcast.
pub(crate) struct Delivery {
    shared_broadcast: Arc<dyn AnyParcel>,
    /// The members on this loop.
    keys: Arc<[Key]>,
    /// What the message counts at each of them.
    tickets: Option<Arc<[Option<WriteTicket>]>>,
    /// The first member that it has not come to yet.
    next: usize,
    except: Option<Key>,
    memo: EncodingMemo,
    report: BroadcastReport,
    /// The first encoding error, and the rate limit and time for logging it.
    failed: Option<(Error, Arc<LogThrottle>, u64)>,
}

impl Delivery {
    /// The delivery that [`MailSender::broadcast`](crate::channel::MailSender::broadcast) was given, which names no type
    /// of this layer.
    pub(crate) fn from_any(delivery: Box<AnyDelivery>) -> Box<Delivery> {
        delivery.downcast().expect("loops are given deliveries only")
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

    /// The next member; none if there are no more.
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

    /// Whether it has come to all members.
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

    /// Counts a member.
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
    /// However it ends: every member is counted, and nobody waits for the report in vain.
    fn drop(&mut self) {
        self.report.unreached += self.report.members - self.report.counted();
        if let Some((error, log, now)) = &self.failed {
            let (n, message) = (self.report.failed, self.shared_broadcast.message_type());
            let at = LogAt { log, now: *now };
            // The program's log may panic.
            caught(|| {
                log_throttled!(
                    at,
                    BROADCASTS,
                    Level::Warn,
                    "a broadcast of {message} could not be encoded for {n} channels: {error}"
                );
            });
        }
        self.shared_broadcast.progress().end_part(&self.report);
    }
}
