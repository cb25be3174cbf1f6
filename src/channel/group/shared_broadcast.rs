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
//! Invariants: a loop gets one [`Delivery`] of a broadcast. A message is encoded once for all
//! channels that encode alike. Shared by the loops of the members.

use super::{
    members::LoopMembers,
    report::{Broadcast, Progress},
    waiting::WaitingDeliveries,
};
use crate::{
    channel::{
        BroadcastReport, Delivery,
        handle::{ErasedBroadcast, PartReservations},
        shared_message::{Encoder, Encoding, SharedMessage},
    },
    error::{Error, Result, SendError},
    id::ChannelId,
    machine::Mutex,
};
use std::{
    any::{Any, type_name},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

/// The recipients of a broadcast.
pub(super) struct Sending {
    pub(super) parts: Arc<[LoopMembers]>,
    pub(super) members: usize,
    /// A member that does not receive it.
    pub(super) except: Option<ChannelId>,
    /// The key with which it replaces a message that waits for a member.
    pub(super) latest: Option<u64>,
    /// Whether overloaded loops refuse it.
    pub(super) is_bulk: bool,
    /// The group's deliveries in progress, among which this broadcast counts.
    pub(super) waiting: Arc<WaitingDeliveries>,
}

/// A message for many channels, its encodings and its progress.
pub(super) struct SharedBroadcast<M> {
    message: M,
    sending: Sending,
    /// The encodings by encoder.
    encodings: Mutex<Vec<(Encoder, Encoding)>>,
    progress: Arc<Progress>,
}

impl<M: Clone + Send + Sync + 'static> SharedBroadcast<M> {
    pub(super) fn new(message: M, sending: Sending) -> Self {
        let progress = Arc::new(Progress::new(sending.parts.len(), sending.waiting.clone()));
        SharedBroadcast { message, sending, encodings: Mutex::default(), progress }
    }

    /// Sends a delivery to each loop, with the reservations at its members.
    ///
    /// # Errors
    /// The message if no loop accepts its delivery.
    pub(super) fn send(self, reserved: Vec<PartReservations>) -> Result<Broadcast, SendError<M>> {
        let shared_broadcast = Arc::new(self);
        let Sending { parts, members, except, latest, is_bulk, .. } = &shared_broadcast.sending;
        let (members, latest, loops) =
            (*members, *latest, parts.iter().map(|part| part.event_loop).collect());
        let (mut unreached, mut unreached_loops, mut reason) = (0, Vec::new(), None);
        let mut reserved = reserved.into_iter();
        for part in parts.iter() {
            let except = except.filter(|id| id.event_loop == part.event_loop).map(|id| id.key);
            let reserved = reserved.next().flatten();
            let (broadcast, keys) = (shared_broadcast.clone(), part.keys.clone());
            let delivery = Delivery::new(broadcast, keys, except, reserved, latest);
            let admitted = if *is_bulk { part.sender.admit_bulk() } else { Ok(()) };
            let sent = match admitted {
                Ok(()) => part.sender.broadcast(Box::new(delivery)),
                Err(refused) => Err((Box::new(delivery), refused.into())),
            };
            if let Err((delivery, why)) = sent {
                unreached += delivery.members();
                unreached_loops.push(part.event_loop);
                reason = Some(why);
            }
        }
        let progress = shared_broadcast.progress.clone();
        if let Some(reason) = reason
            && unreached_loops.len() == parts.len()
        {
            match Arc::try_unwrap(shared_broadcast) {
                Ok(shared_broadcast) => return Err(SendError::new(shared_broadcast.message, reason)),
                // Deliveries hold the only other references, and all were dropped.
                Err(_) => unreachable!("a refused parcel has no other owner"),
            }
        }
        Ok(Broadcast { members, loops, unreached, unreached_loops, progress })
    }
}

impl<M: Clone + Send + Sync + 'static> SharedMessage for SharedBroadcast<M> {
    fn clone_into(&self, place: &mut dyn Any) {
        if let Some(place) = place.downcast_mut::<Option<M>>() {
            *place = Some(self.message.clone());
        }
    }

    fn encoded(&self, encoder: Encoder, encode: &mut dyn FnMut() -> Encoding) -> Encoding {
        // Held while encoding: other loops wait for the encoding instead of repeating it.
        let mut encodings = self.encodings.lock();
        if let Some((_, made)) = encodings.iter().find(|(by, _)| *by == encoder) {
            return made.clone();
        }
        let (made, panic) = match catch_unwind(AssertUnwindSafe(encode)) {
            Ok(made) => (made, None),
            Err(panic) => (Encoding::Failed(Error::panicked("encoding a broadcast")), Some(panic)),
        };
        encodings.push((encoder, made.clone()));
        drop(encodings);
        if let Some(panic) = panic {
            // The panic closes this channel only.
            resume_unwind(panic);
        }
        made
    }
}

impl<M: Clone + Send + Sync + 'static> ErasedBroadcast for SharedBroadcast<M> {
    fn group(&self) -> usize {
        Arc::as_ptr(&self.sending.waiting).addr()
    }

    fn end_part(&self, report: &BroadcastReport) {
        self.progress.end_part(report);
    }

    fn message_type(&self) -> &'static str {
        type_name::<M>()
    }
}

#[cfg(test)]
use crate::{
    channel::{Channel, handle::MemberReservation},
    id::Key,
};
#[cfg(test)]
use bytes::Bytes;

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

    /// Creates the delivery of a broadcast to channels of one loop. At some of them a weight is
    /// reserved.
    pub(crate) fn delivery(&self, members: &[(Key, Option<u32>)], except: Option<Key>) -> Box<Delivery> {
        let reserve = |weight: u32| MemberReservation::of(&self.channel, weight);
        let reserved = members.iter().map(|(_, weight)| weight.map(reserve)).collect();
        let event_loop = 0;
        let keys: Arc<[Key]> = members.iter().map(|(key, _)| *key).collect();
        let part =
            LoopMembers { event_loop, sender: self.channel.shared().sender.clone(), keys: keys.clone() };
        let (parts, members) = (Arc::from([part]), members.len() - usize::from(except.is_some()));
        self.waiting.begin(members).expect("the group has no limit");
        let except_id = except.map(|key| ChannelId { event_loop, key });
        let waiting = self.waiting.clone();
        let sending = Sending { parts, members, except: except_id, latest: None, is_bulk: false, waiting };
        let broadcast = Arc::new(SharedBroadcast::new(Bytes::new(), sending));
        Box::new(Delivery::new(broadcast, keys, except, Some(reserved), None))
    }
}
