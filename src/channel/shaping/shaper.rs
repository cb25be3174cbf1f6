//! The shaping of one channel: what it may move now, and when it goes on.
//!
//! Always holds: while one direction waits nothing moves in it, and the channel has exactly one
//! entry in the heap, for the first of the times at which it may go on; what it has booked and not
//! used goes back, also when the channel ends. Whether the program wants to read is none of its
//! business. Runs on the channel's loop; owns neither heap nor clock.

use super::{SharedTraffic, TrafficShaping, bucket::Bucket, direction::Direction};
use crate::{
    channel::timers::{ChannelTimer, Due, DueQueue, TimerToken},
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
    /// In the heap, at the first of the times for which a lane waits.
    entry: Option<QueueKey>,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    way: Direction,
    /// None: only the group limits it, if anything does.
    own: Option<Bucket>,
    /// Bytes that were taken from the own bucket, and from the group's, and have not moved.
    held: usize,
    held_of_group: usize,
    /// It waits until then.
    until: Option<u64>,
    /// It waits for the group.
    queued: bool,
    /// It has waited since bytes last moved, or could have.
    held_up: bool,
}

impl Lane {
    fn new(way: Direction, own: Option<Bucket>) -> Self {
        Lane { way, own, held: 0, held_of_group: 0, until: None, queued: false, held_up: false }
    }

    /// How many of `want` bytes may move now. If none may, it waits from now on.
    fn allow(&mut self, group: Option<&SharedTraffic>, want: usize, now: u64, instant: Instant) -> usize {
        if self.until.is_some() {
            return 0;
        }
        let own = self.own.as_mut().map_or(want, |bucket| {
            self.held += bucket.take(want.saturating_sub(self.held), now);
            self.held.min(want)
        });
        let missing = own.saturating_sub(self.held_of_group);
        let of_group = match group.map(|group| group.take(self.way, missing, instant)) {
            Some(Some(taken)) => {
                self.held_of_group += taken;
                self.held_of_group.min(own)
            }
            _ => own,
        };
        if of_group > 0 || want == 0 {
            return of_group;
        }
        // What the other one of the two has given is of no use meanwhile.
        self.give_back(group);
        let mut until = now;
        if own == 0
            && let Some(bucket) = &mut self.own
        {
            let booking = bucket.book(0, now);
            self.held = booking.bytes;
            until = until.max(booking.at);
        } else if let Some(booking) = group.and_then(|group| group.book(self.way, instant)) {
            self.held_of_group = booking.bytes;
            self.queued = true;
            until = until.max(now.saturating_add(booking.at));
        }
        self.until = Some(until);
        self.held_up = true;
        0
    }

    /// It waits no longer.
    fn go_on(&mut self, group: Option<&SharedTraffic>) {
        self.until = None;
        if let Some(group) = group.filter(|_| std::mem::take(&mut self.queued)) {
            group.waited(self.way);
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
            group.give_back(self.way, of_group);
        }
    }
}

impl Shaper {
    /// As the settings say; what `before` owes stays owed.
    pub(in crate::channel) fn new(settings: TrafficShaping, before: Option<&mut Shaper>, now: u64) -> Self {
        let mut before = before;
        let mut lane = |way| {
            let rate = settings.limits.of(way);
            let owed = before.as_deref_mut().and_then(|before| {
                before.leave(way);
                before.lane(way).own.as_ref()
            });
            Lane::new(
                way,
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

    /// Returns how many of `want` bytes may move now, and whether the direction begins to wait
    /// because none may.
    pub(in crate::channel) fn allow(
        &mut self,
        way: Direction,
        want: usize,
        now: u64,
        instant: Instant,
    ) -> (usize, bool) {
        let (lane, group) = self.lane_and_group(way);
        let waited = lane.until.is_some();
        let allowed = lane.allow(group, want, now, instant);
        (allowed, allowed == 0 && !waited && want > 0)
    }

    /// So many bytes have moved.
    pub(in crate::channel) fn note_moved(&mut self, way: Direction, bytes: usize) {
        self.lane_mut(way).moved(bytes);
    }

    /// No more bytes move for now: gives back what could have moved besides. Does nothing while the
    /// direction waits for the limit.
    pub(in crate::channel) fn end_burst(&mut self, way: Direction) {
        if !self.is_waiting(way) {
            self.give_back(way);
            self.lane_mut(way).held_up = false;
        }
    }

    /// Whether this direction waits.
    #[inline]
    pub(in crate::channel) fn is_waiting(&self, way: Direction) -> bool {
        self.lane(way).until.is_some()
    }

    /// Whether the limit, and not the peer, is why nothing has moved of late.
    pub(in crate::channel) fn was_held_up(&self, way: Direction) -> bool {
        self.lane(way).held_up
    }

    /// The entry has expired: a direction that has waited long enough goes on.
    pub(in crate::channel) fn note_expired(&mut self, now: u64) {
        self.entry = None;
        for way in [Direction::Read, Direction::Write] {
            let (lane, group) = self.lane_and_group(way);
            if lane.until.is_some_and(|until| until <= now) {
                lane.go_on(group);
            }
        }
    }

    /// Inserts the channel's entry at the first of the times for which a direction waits. It must
    /// be disarmed.
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
    fn lane(&self, way: Direction) -> &Lane {
        match way {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    fn lane_mut(&mut self, way: Direction) -> &mut Lane {
        match way {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    fn next(&self) -> Option<u64> {
        [self.read.until, self.write.until].into_iter().flatten().min()
    }

    fn lane_and_group(&mut self, way: Direction) -> (&mut Lane, Option<&SharedTraffic>) {
        let Shaper { read, write, shared, .. } = self;
        (if way == Direction::Read { read } else { write }, shared.as_ref())
    }

    fn give_back(&mut self, way: Direction) {
        let (lane, group) = self.lane_and_group(way);
        lane.give_back(group);
    }

    /// Waits for nothing any more, and gives back what it has.
    fn leave(&mut self, way: Direction) {
        let (lane, group) = self.lane_and_group(way);
        lane.go_on(group);
        lane.give_back(group);
    }
}

impl Drop for Shaper {
    /// Others of the group have what this one has booked.
    fn drop(&mut self) {
        self.leave(Direction::Read);
        self.leave(Direction::Write);
    }
}
