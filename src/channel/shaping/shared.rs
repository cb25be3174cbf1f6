//! The buckets of a group of channels, on any loops.
//!
//! Time counts from the first instant that a loop passes, so no clock is read here. Loops that
//! share a bucket should have the same clock.
//!
//! Invariants: all channels together keep to the limits. Those that wait are served in order. The
//! lock is held for a few additions, and only by channels that share it.

use super::{
    Rate, TrafficLimits,
    bucket::{Booking, Bucket},
    direction::Direction,
};
use crate::clock::nanos;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Limits that many channels keep to together: those of a server, of a tenant, of a link. Clones are the same group.
///
/// Every channel that is given it ([`PipelineBuilder::traffic`](crate::pipeline::PipelineBuilder::traffic)) takes from it what it needs. While there is
/// enough, whoever comes has it, up to the burst; once it is used up those that wait take turns, in the order in which they came,
/// with shares that become smaller the more wait (of 1 KiB at least, unless 10 ms bring less). So a channel with much to send
/// holds no other one up for longer than a turn of all.
///
/// What a channel has booked and does not need goes back, also when it closes.
///
/// ```
/// use netwheel::traffic::{SharedTraffic, TrafficLimits};
///
/// let group = SharedTraffic::new(TrafficLimits::new().read(10_000_000).write(10_000_000));
/// // Later, from any thread:
/// group.set(TrafficLimits::new().read(10_000_000).write(2_000_000));
/// ```
#[derive(Clone)]
pub struct SharedTraffic(Arc<Mutex<SharedLimits>>);

struct SharedLimits {
    limits: TrafficLimits,
    /// Time is counted from here.
    origin: Option<Instant>,
    /// The last time that was told.
    now: u64,
    read: Side,
    write: Side,
}

/// One direction: none for no limit, and how many channels wait.
struct Side {
    bucket: Option<Bucket>,
    waiting: u64,
}

impl SharedTraffic {
    /// A group with these limits and no channels yet.
    pub fn new(limits: TrafficLimits) -> Self {
        let [read, write] = [limits.read, limits.write]
            .map(|rate| Side { bucket: Bucket::new(rate.per_second, rate.burst), waiting: 0 });
        SharedTraffic(Arc::new(Mutex::new(SharedLimits { limits, origin: None, now: 0, read, write })))
    }

    /// Its limits.
    pub fn limits(&self) -> TrafficLimits {
        self.state().limits
    }

    /// Changes the limits, from any thread. A channel that is waiting goes on at the time that it was given before.
    pub fn set(&self, limits: TrafficLimits) {
        let mut state = self.state();
        state.limits = limits;
        let now = state.now;
        for way in [Direction::Read, Direction::Write] {
            let Rate { per_second, burst } = limits.of(way);
            let bucket = &mut state.side(way).bucket;
            *bucket = match bucket {
                Some(bucket) => bucket.changed(per_second, burst, now),
                None => Bucket::new(per_second, burst),
            };
        }
    }

    /// Takes up to `want` bytes; how many, or none if there is no limit.
    pub(super) fn take(&self, way: Direction, want: usize, now: Instant) -> Option<usize> {
        let mut state = self.state();
        let now = state.at(now);
        let side = state.side(way);
        let bucket = side.bucket.as_mut()?;
        let share = usize::try_from(bucket.share(side.waiting)).unwrap_or(usize::MAX);
        Some(bucket.take(want.min(share), now))
    }

    /// Takes a share in advance, as of nanoseconds from now, and waits for it; none if there is no limit.
    pub(super) fn book(&self, way: Direction, now: Instant) -> Option<Booking> {
        let mut state = self.state();
        let now = state.at(now);
        let side = state.side(way);
        let booking = side.bucket.as_mut()?.book(side.waiting, now);
        side.waiting += 1;
        Some(Booking { at: booking.at.saturating_sub(now), ..booking })
    }

    /// One that has booked waits no longer.
    pub(super) fn waited(&self, way: Direction) {
        let mut state = self.state();
        let side = state.side(way);
        side.waiting = side.waiting.saturating_sub(1);
    }

    /// Gives back what did not move.
    pub(super) fn give_back(&self, way: Direction, bytes: usize) {
        if let Some(bucket) = &mut self.state().side(way).bucket {
            bucket.give_back(bytes);
        }
    }

    fn state(&self) -> MutexGuard<'_, SharedLimits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedLimits {
    fn at(&mut self, now: Instant) -> u64 {
        let origin = *self.origin.get_or_insert(now);
        self.now = self.now.max(nanos(now.saturating_duration_since(origin)));
        self.now
    }

    fn side(&mut self, way: Direction) -> &mut Side {
        match way {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }
}

impl fmt::Debug for SharedTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTraffic").field("limits", &self.limits()).finish_non_exhaustive()
    }
}
