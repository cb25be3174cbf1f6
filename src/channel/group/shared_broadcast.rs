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
    members::{Part, PartReservations},
    report::{BroadcastReport, Progress},
    waiting::WaitingDeliveries,
};
use crate::{
    Error, Result, SendError,
    channel::{
        core::{ChannelCore, Outcome},
        handle::{AnyDelivery, MemberReservation},
        links::{Encoder, EncodingMemo, SharedMessage, again},
        services::LoopServices,
    },
    error::caught,
    id::{ChannelId, Key},
    log_throttle::{BROADCASTS, LogAt, LogThrottle, log_throttled},
    lookup::LookupSet,
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

    /// Sends a delivery to each loop, with the reservations at its members.
    ///
    /// # Errors
    /// Returns the message if no loop accepts its delivery.
    pub(super) fn send(self, reserved: Vec<PartReservations>) -> Result<Broadcast, SendError<M>> {
        let shared_broadcast = Arc::new(self);
        let Sending { parts, members, .. } = &shared_broadcast.sending;
        let (members, loops) = (*members, parts.iter().map(|part| part.event_loop).collect());
        let (mut unreached, mut refused, mut reason) = (0, 0, None);
        let mut reserved = reserved.into_iter();
        for (at, part) in parts.iter().enumerate() {
            let delivery = Delivery::new(shared_broadcast.clone(), at, reserved.next().flatten());
            if let Err((delivery, why)) = part.outlet.broadcast(Box::new(delivery)) {
                unreached += Delivery::from_any(delivery).report.members;
                refused += 1;
                reason = Some(why);
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
    /// The reservations of the message at them. Those of members that are not reached are dropped.
    reserved: PartReservations,
    /// The next member.
    next: usize,
    /// Members behind `next` that were taken out of turn.
    early: LookupSet<usize>,
    except: Option<Key>,
    memo: EncodingMemo,
    report: BroadcastReport,
    /// The first encoding error, and the rate limit and time for logging it.
    failed: Option<(Error, Arc<LogThrottle>, u64)>,
}

/// A member that receives a broadcast now. Each member is taken at most once, so no reservation is
/// used twice or for another member.
#[must_use]
pub(crate) struct Recipient {
    key: Key,
    place: usize,
}

impl Recipient {
    #[inline]
    pub(crate) fn key(&self) -> Key {
        self.key
    }
}

impl Delivery {
    /// Returns the delivery that was passed to
    /// [`MailSender::broadcast`](crate::channel::MailSender::broadcast), which names no type of
    /// this layer.
    pub(crate) fn from_any(delivery: Box<AnyDelivery>) -> Box<Delivery> {
        delivery.downcast().expect("the mail is a `Delivery`")
    }

    fn new(shared_broadcast: Arc<dyn AnyParcel>, part: usize, reserved: PartReservations) -> Self {
        let Sending { parts, except, .. } = shared_broadcast.sending();
        let Part { event_loop, keys, .. } = &parts[part];
        let except = except.filter(|id| id.event_loop == *event_loop).map(|id| id.key);
        let (keys, reached) = (keys.clone(), keys.len() - usize::from(except.is_some()));
        let report = BroadcastReport { members: reached, ..BroadcastReport::default() };
        Delivery {
            shared_broadcast,
            keys,
            reserved,
            next: 0,
            early: LookupSet::new(),
            except,
            memo: EncodingMemo::default(),
            report,
            failed: None,
        }
    }

    /// Takes the next member in turn. Returns `None` after the last one.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Recipient> {
        loop {
            let key = *self.keys.get(self.next)?;
            let at = self.next;
            self.next += 1;
            if self.except != Some(key) && (self.early.is_empty() || !self.take_early(at)) {
                return Some(Recipient { key, place: at });
            }
        }
    }

    /// Returns whether the member at this place was taken out of turn.
    // Not inlined, because the preparation of the hash would move in front of each member.
    #[cold]
    #[inline(never)]
    fn take_early(&mut self, place: usize) -> bool {
        self.early.remove(&place)
    }

    /// Returns the place of this member if it has not been taken yet.
    pub(crate) fn place_of(&self, key: Key) -> Option<usize> {
        let found = self.keys.get(self.next..)?.iter().position(|one| *one == key);
        let at = self.next + found.filter(|_| self.except != Some(key))?;
        (!self.early.contains(&at)).then_some(at)
    }

    /// Takes the member at a place that [`place_of`](Delivery::place_of) has returned, out of turn.
    /// Returns `None` if it has been taken meanwhile.
    pub(crate) fn take(&mut self, place: usize) -> Option<Recipient> {
        let key = *self.keys.get(place).filter(|_| place >= self.next)?;
        self.early.insert(place).then_some(Recipient { key, place })
    }

    #[inline]
    fn take_reservation(&mut self, recipient: &Recipient) -> Option<MemberReservation> {
        self.reserved.as_mut()?[recipient.place].take()
    }

    /// Returns an identifier of the group, unique while a broadcast of it is in progress.
    pub(crate) fn group(&self) -> usize {
        Arc::as_ptr(&self.shared_broadcast.sending().waiting).addr()
    }

    /// Returns the members that have not been taken in turn.
    pub(crate) fn rest(&self) -> impl Iterator<Item = Key> {
        let rest = self.keys.get(self.next..).unwrap_or_default();
        rest.iter().copied().filter(|key| self.except != Some(*key))
    }

    /// Returns whether all members were taken.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.keys.len()
    }

    /// Writes the message to a member.
    #[inline]
    pub(crate) fn write_to(
        &mut self,
        recipient: Recipient,
        core: &mut ChannelCore,
        services: &mut LoopServices,
    ) {
        let reserved = self.take_reservation(&recipient).and_then(MemberReservation::hand_over);
        let outcome = core.handle_broadcast(services, &*self.shared_broadcast, &mut self.memo, reserved);
        services.tally.broadcast_encodings += std::mem::take(&mut self.memo.encodings);
        self.count(services, outcome);
    }

    /// Counts a member whose channel does not exist any more.
    pub(crate) fn skip(&mut self, recipient: Recipient, services: &mut LoopServices) {
        drop(self.take_reservation(&recipient));
        self.count(services, Outcome::Gone);
    }

    /// Counts the result for a member.
    #[inline]
    fn count(&mut self, services: &mut LoopServices, outcome: Outcome) {
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

#[cfg(test)]
use crate::channel::handle::Channel;

#[cfg(test)]
impl Delivery {
    /// Takes the weight that is reserved at a member.
    pub(crate) fn take_weight(&mut self, recipient: &Recipient) -> Option<u32> {
        self.take_reservation(recipient).as_ref().and_then(MemberReservation::weight)
    }

    /// Creates the delivery of a broadcast of `group` to channels of one loop. At some of them a
    /// weight is reserved.
    pub(crate) fn of(
        group: &TestGroup,
        members: &[(Key, Option<u32>)],
        except: Option<Key>,
    ) -> Box<Delivery> {
        let reserve = |weight: u32| MemberReservation::of(&group.channel, weight);
        let reserved = members.iter().map(|(_, weight)| weight.map(reserve)).collect();
        let event_loop = 0;
        let keys = members.iter().map(|(key, _)| *key).collect();
        let part = Part { event_loop, outlet: group.channel.shared().outlet.clone(), keys };
        let (parts, members) = (Arc::from([part]), members.len() - usize::from(except.is_some()));
        group.waiting.begin(members).expect("the group has no limit");
        let except = except.map(|key| ChannelId { event_loop, key });
        let sending = Sending { parts, members, except, waiting: group.waiting.clone() };
        Box::new(Delivery::new(Arc::new(SharedBroadcast::new(Bytes::new(), sending)), 0, Some(reserved)))
    }
}

/// A group for tests of deliveries. Has no members of its own.
#[cfg(test)]
pub(crate) struct TestGroup {
    channel: Channel<Bytes>,
    waiting: Arc<WaitingDeliveries>,
}

#[cfg(test)]
impl TestGroup {
    pub(crate) fn new(channel: &Channel<Bytes>) -> Self {
        let waiting = Arc::new(WaitingDeliveries::new(usize::MAX >> 1, usize::MAX >> 1));
        TestGroup { channel: channel.clone(), waiting }
    }

    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.waiting).addr()
    }
}
