//! The shaping of one channel: how many bytes it may move now, and when it continues.
//!
//! Invariants: nothing moves in a direction that waits. While a direction waits, the channel has
//! exactly one entry in the heap, at the earlier of the two times. Reserved bytes that were not
//! used are returned, also when the channel ends (`Drop`). Whether the program wants to read does
//! not matter here. Runs on the channel's loop. Owns neither heap nor clock.

use super::{TrafficShaping, bucket::Bucket, direction::Direction, shared::SharedTraffic};
use crate::{
    channel::{ChannelTimer, Due, DueQueue, TimerToken},
    id::Key,
    timer::QueueKey,
};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Shaper {
    read: Lane,
    write: Lane,
    shared: Option<SharedTraffic>,
    settings: TrafficShaping,
    /// The entry in the heap, at the earliest resumption.
    entry: Option<QueueKey>,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    direction: Direction,
    /// `None`: only the group, if any, limits this direction.
    own: Option<Bucket>,
    /// Bytes that were taken from the channel's bucket, and from the group's, but have not moved.
    held: usize,
    held_of_group: usize,
    /// The time until which the direction waits.
    until: Option<u64>,
    /// Whether it waits for the group.
    queued: bool,
    /// Whether it has waited since bytes last moved, or could have moved.
    held_up: bool,
}

impl Lane {
    fn new(direction: Direction, own: Option<Bucket>) -> Self {
        Lane { direction, own, held: 0, held_of_group: 0, until: None, queued: false, held_up: false }
    }

    /// Returns how many of `want` bytes may move now. If none may, the direction starts to wait.
    fn allow(&mut self, group: Option<&SharedTraffic>, want: usize, now: u64, instant: Instant) -> usize {
        if self.until.is_some() {
            return 0;
        }
        let own = self.own.as_mut().map_or(want, |bucket| {
            self.held += bucket.take(want.saturating_sub(self.held), now);
            self.held.min(want)
        });
        let missing = own.saturating_sub(self.held_of_group);
        let of_group = match group.map(|group| group.take(self.direction, missing, instant)) {
            Some(Some(taken)) => {
                self.held_of_group += taken;
                self.held_of_group.min(own)
            }
            _ => own,
        };
        if of_group > 0 || want == 0 {
            return of_group;
        }
        // Bytes from the other bucket cannot be used while this one waits.
        self.give_back(group);
        let mut until = now;
        if own == 0
            && let Some(bucket) = &mut self.own
        {
            let booking = bucket.book(0, now);
            self.held = booking.bytes;
            until = until.max(booking.at);
        } else if let Some(booking) = group.and_then(|group| group.book(self.direction, instant)) {
            self.held_of_group = booking.bytes;
            self.queued = true;
            until = until.max(now.saturating_add(booking.at));
        }
        self.until = Some(until);
        self.held_up = true;
        0
    }

    /// Ends the wait.
    fn end_wait(&mut self, group: Option<&SharedTraffic>) {
        self.until = None;
        if let Some(group) = group.filter(|_| std::mem::take(&mut self.queued)) {
            group.waited(self.direction);
        }
    }

    fn moved(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
        self.held_of_group = self.held_of_group.saturating_sub(bytes);
        self.held_up = false;
    }

    fn give_back(&mut self, group: Option<&SharedTraffic>) {
        let (own, of_group) = (std::mem::take(&mut self.held), std::mem::take(&mut self.held_of_group));
        if let Some(bucket) = self.own.as_mut().filter(|_| own > 0) {
            bucket.give_back(own);
        }
        if let Some(group) = group.filter(|_| of_group > 0) {
            group.give_back(self.direction, of_group);
        }
    }
}

impl Shaper {
    /// Creates a shaper with these settings. Keeps the debts of `before`.
    pub(in crate::channel) fn new(settings: TrafficShaping, before: Option<&mut Shaper>, now: u64) -> Self {
        let mut before = before;
        let mut lane = |direction| {
            let rate = settings.limits.of(direction);
            let owed = before.as_deref_mut().and_then(|before| {
                before.leave(direction);
                before.lane(direction).own.as_ref()
            });
            Lane::new(
                direction,
                match owed {
                    Some(bucket) => bucket.changed(rate.per_second, rate.burst, now),
                    None => Bucket::new(rate.per_second, rate.burst),
                },
            )
        };
        let (read, write) = (lane(Direction::Read), lane(Direction::Write));
        Shaper { read, write, shared: settings.shared.clone(), settings, entry: None }
    }

    pub(in crate::channel) fn settings(&self) -> &TrafficShaping {
        &self.settings
    }

    /// Returns how many of `want` bytes may move now, and whether the direction starts to wait
    /// because none may.
    pub(in crate::channel) fn allow(
        &mut self,
        direction: Direction,
        want: usize,
        now: u64,
        instant: Instant,
    ) -> (usize, bool) {
        let (lane, group) = self.lane_and_group(direction);
        let waited = lane.until.is_some();
        let allowed = lane.allow(group, want, now, instant);
        (allowed, allowed == 0 && !waited && want > 0)
    }

    /// Records that bytes have moved.
    pub(in crate::channel) fn note_moved(&mut self, direction: Direction, bytes: usize) {
        self.lane_mut(direction).moved(bytes);
    }

    /// Ends a burst. Returns unused bytes to the buckets, unless the direction waits for its limit.
    pub(in crate::channel) fn end_burst(&mut self, direction: Direction) {
        if !self.is_waiting(direction) {
            self.give_back(direction);
            self.lane_mut(direction).held_up = false;
        }
    }

    /// Returns whether this direction waits.
    #[inline]
    pub(in crate::channel) fn is_waiting(&self, direction: Direction) -> bool {
        self.lane(direction).until.is_some()
    }

    /// Returns whether the limit, and not the peer, has recently stopped this direction.
    pub(in crate::channel) fn was_held_up(&self, direction: Direction) -> bool {
        self.lane(direction).held_up
    }

    /// Resumes the directions that have waited long enough, after the entry has expired.
    pub(in crate::channel) fn note_expired(&mut self, now: u64) {
        self.entry = None;
        for direction in [Direction::Read, Direction::Write] {
            let (lane, group) = self.lane_and_group(direction);
            if lane.until.is_some_and(|until| until <= now) {
                lane.end_wait(group);
            }
        }
    }

    /// Inserts the channel's entry at the earliest resumption. It must be disarmed.
    pub(in crate::channel) fn arm(&mut self, channel: Key, queue: &DueQueue) {
        debug_assert!(self.entry.is_none());
        if let Some(at) = self.next() {
            let token = TimerToken::new(channel, ChannelTimer::Shaper);
            self.entry = Some(queue.insert(at, Due::Channel(token)));
        }
    }

    /// Takes the key of the channel's entry, for the caller to cancel.
    pub(in crate::channel) fn take_entry(&mut self) -> Option<QueueKey> {
        self.entry.take()
    }

    #[inline]
    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    fn lane_mut(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    fn next(&self) -> Option<u64> {
        [self.read.until, self.write.until].into_iter().flatten().min()
    }

    fn lane_and_group(&mut self, direction: Direction) -> (&mut Lane, Option<&SharedTraffic>) {
        let Shaper { read, write, shared, .. } = self;
        (if direction == Direction::Read { read } else { write }, shared.as_ref())
    }

    fn give_back(&mut self, direction: Direction) {
        let (lane, group) = self.lane_and_group(direction);
        lane.give_back(group);
    }

    /// Ends the wait of a direction and returns its bytes.
    fn leave(&mut self, direction: Direction) {
        let (lane, group) = self.lane_and_group(direction);
        lane.end_wait(group);
        lane.give_back(group);
    }
}

impl Drop for Shaper {
    /// Returns the reservations to the group.
    fn drop(&mut self) {
        self.leave(Direction::Read);
        self.leave(Direction::Write);
    }
}
