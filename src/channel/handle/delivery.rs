//! The part of a broadcast for one loop.
//!
//! Invariants: each member is counted once, also if the loop ends before it is reached: a dropped
//! delivery counts the remaining members. Each member is taken at most once, so no reservation is
//! used twice or for another member. Runs on the loop of the members.

use super::{broadcast_report::BroadcastReport, reservation::MemberReservation};
use crate::{
    channel::shared_message::{EncodingMemo, SharedMessage},
    error::{Error, caught},
    id::Key,
    log_throttle::{BROADCASTS, LogAt, LogThrottle, log_throttled},
    lookup::LookupSet,
};
use log::Level;
use std::sync::Arc;

/// A broadcast whose message type is erased.
pub(in crate::channel) trait ErasedBroadcast: SharedMessage + Send + Sync {
    /// Returns an identifier of the group, unique while a broadcast of it is in progress.
    fn group(&self) -> usize;

    /// Records that a loop has finished its part.
    fn end_part(&self, report: &BroadcastReport);

    /// Returns the name of the message's type, for reports.
    fn message_type(&self) -> &'static str;
}

/// The reservations of a broadcast at the members of one part: at each member that was selected
/// because it is writable. `None` if there are none.
pub(in crate::channel) type PartReservations = Option<Vec<Option<MemberReservation>>>;

/// The part of a broadcast for one loop.
pub(crate) struct Delivery {
    broadcast: Arc<dyn ErasedBroadcast>,
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
    /// Creates the delivery to the members with these keys, apart from `except`. With the key
    /// `latest`, the message replaces one that waits.
    pub(in crate::channel) fn new(
        broadcast: Arc<dyn ErasedBroadcast>,
        keys: Arc<[Key]>,
        except: Option<Key>,
        reserved: PartReservations,
        latest: Option<u64>,
    ) -> Self {
        let members = keys.len() - usize::from(except.is_some());
        let report = BroadcastReport { members, ..BroadcastReport::default() };
        Delivery {
            broadcast,
            keys,
            reserved,
            next: 0,
            early: LookupSet::new(),
            except,
            memo: EncodingMemo { latest, ..EncodingMemo::default() },
            report,
            failed: None,
        }
    }

    /// Returns the number of members.
    pub(in crate::channel) fn members(&self) -> usize {
        self.report.members
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
    /// Returns `None` if it has already been taken.
    pub(crate) fn take(&mut self, place: usize) -> Option<Recipient> {
        let key = *self.keys.get(place).filter(|_| place >= self.next)?;
        self.early.insert(place).then_some(Recipient { key, place })
    }

    #[inline]
    pub(in crate::channel) fn take_reservation(
        &mut self,
        recipient: &Recipient,
    ) -> Option<MemberReservation> {
        self.reserved.as_mut()?[recipient.place].take()
    }

    /// Returns an identifier of the group, unique while a broadcast of it is in progress.
    pub(crate) fn group(&self) -> usize {
        self.broadcast.group()
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

    /// Returns the message and the encoding that the last member has used.
    #[inline]
    pub(in crate::channel) fn message(&mut self) -> (&dyn SharedMessage, &mut EncodingMemo) {
        (&*self.broadcast, &mut self.memo)
    }

    /// Counts a member whose channel does not exist any more.
    pub(crate) fn skip(&mut self, recipient: Recipient) {
        drop(self.take_reservation(&recipient));
        self.count(Outcome::Gone);
    }

    /// Counts the result for a member.
    #[inline]
    pub(in crate::channel) fn count(&mut self, outcome: Outcome) {
        let report = &mut self.report;
        match outcome {
            Outcome::Written => report.written += 1,
            Outcome::Dropped => report.dropped += 1,
            Outcome::Refused => report.refused += 1,
            Outcome::Closed => report.closed += 1,
            Outcome::Gone => report.gone += 1,
            Outcome::Failed => report.failed += 1,
        }
    }

    /// Keeps the first error of an encoding, to log it at the end.
    #[cold]
    pub(in crate::channel) fn note_error(&mut self, error: Error, log: &Arc<LogThrottle>, now: u64) {
        self.failed.get_or_insert_with(|| (error, log.clone(), now));
    }
}

impl Drop for Delivery {
    /// Counts the remaining members, so that the report completes in any case.
    fn drop(&mut self) {
        self.report.unreached += self.report.members - self.report.counted();
        if let Some((error, log, now)) = &self.failed {
            let (n, message) = (self.report.failed, self.broadcast.message_type());
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
        self.broadcast.end_part(&self.report);
    }
}

/// The result of a broadcast for one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::channel) enum Outcome {
    Written,
    Dropped,
    Refused,
    Closed,
    /// The encoding failed.
    Failed,
    Gone,
}

#[cfg(test)]
impl Delivery {
    /// Takes the weight that is reserved at a member.
    pub(crate) fn take_weight(&mut self, recipient: &Recipient) -> Option<u32> {
        self.take_reservation(recipient).as_ref().and_then(MemberReservation::weight)
    }
}
