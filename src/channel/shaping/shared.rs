//! The buckets of a group of channels, on any loops.
//!
//! Time counts from the first instant that a loop passes, so no clock is read here. Loops that
//! share a bucket should have the same clock.
//!
//! Invariants: all channels together keep to the limits. Waiting channels are served in order. The
//! lock is held for a few additions, and only by channels that share it.

use super::{
    Rate, TrafficLimits,
    bucket::{Booking, Bucket},
    direction::Direction,
};
use crate::{clock::nanos, machine::Mutex};
use std::{fmt, sync::Arc, time::Instant};

/// Rate limits that many channels share, for example those of a server, a tenant or a link. Clones
/// are handles to the same group.
///
/// Each channel in the group
/// ([`PipelineBuilder::traffic`](crate::pipeline::PipelineBuilder::traffic)) takes bytes from it.
/// While bytes are available, channels take them immediately, up to the burst. After that the
/// waiting channels take turns in the order of their arrival. Their shares shrink with the number
/// of waiting channels, but not below 1 KiB, or the bytes of 10 ms if these are fewer. So a channel
/// with much to send does not delay another one for longer than one round.
///
/// A channel returns reserved bytes that it does not need, also when it closes.
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
    /// The buckets do not have the new `limits` yet. The next caller that passes a time applies
    /// them, because a change has no time of its own.
    is_changed: bool,
    /// The origin of times.
    origin: Option<Instant>,
    /// The latest time that a caller has passed.
    now: u64,
    read: Side,
    write: Side,
}

/// One direction. `bucket` is `None` if there is no limit; `waiting` is the number of waiting
/// channels.
struct Side {
    bucket: Option<Bucket>,
    waiting: u64,
}

impl SharedTraffic {
    /// Creates a group with these limits and no channels.
    pub fn new(limits: TrafficLimits) -> Self {
        let [read, write] = [limits.read, limits.write]
            .map(|rate| Side { bucket: Bucket::new(rate.per_second, rate.burst), waiting: 0 });
        SharedTraffic(Arc::new(Mutex::new(SharedLimits {
            limits,
            is_changed: false,
            origin: None,
            now: 0,
            read,
            write,
        })))
    }

    /// Returns the limits.
    pub fn limits(&self) -> TrafficLimits {
        self.0.lock().limits
    }

    /// Changes the limits, on any thread. A channel that is waiting resumes at its earlier time.
    pub fn set(&self, limits: TrafficLimits) {
        let mut state = self.0.lock();
        (state.limits, state.is_changed) = (limits, true);
    }

    /// Takes up to `want` bytes and returns their number, or `None` if there is no limit.
    pub(super) fn take(&self, direction: Direction, want: usize, now: Instant) -> Option<usize> {
        let mut state = self.0.lock();
        let now = state.at(now);
        let side = state.side(direction);
        let bucket = side.bucket.as_mut()?;
        let share = usize::try_from(bucket.share(side.waiting)).unwrap_or(usize::MAX);
        Some(bucket.take(want.min(share), now))
    }

    /// Reserves a share in advance and counts the channel as waiting. The time of the booking is in
    /// nanoseconds from now. `None` if there is no limit.
    pub(super) fn book(&self, direction: Direction, now: Instant) -> Option<Booking> {
        let mut state = self.0.lock();
        let now = state.at(now);
        let side = state.side(direction);
        let booking = side.bucket.as_mut()?.book(side.waiting, now);
        side.waiting += 1;
        Some(Booking { at: booking.at.saturating_sub(now), ..booking })
    }

    /// Records that a channel has ended its wait.
    pub(super) fn waited(&self, direction: Direction) {
        let mut state = self.0.lock();
        let side = state.side(direction);
        side.waiting = side.waiting.saturating_sub(1);
    }

    /// Returns bytes that have not moved.
    pub(super) fn give_back(&self, direction: Direction, bytes: usize) {
        if let Some(bucket) = &mut self.0.lock().side(direction).bucket {
            bucket.give_back(bytes);
        }
    }
}

impl SharedLimits {
    fn at(&mut self, now: Instant) -> u64 {
        let origin = *self.origin.get_or_insert(now);
        self.now = self.now.max(nanos(now.saturating_duration_since(origin)));
        if std::mem::take(&mut self.is_changed) {
            self.apply();
        }
        self.now
    }

    /// Gives the buckets the present limits.
    #[cold]
    fn apply(&mut self) {
        let (limits, now) = (self.limits, self.now);
        for direction in [Direction::Read, Direction::Write] {
            let Rate { per_second, burst } = limits.of(direction);
            let bucket = &mut self.side(direction).bucket;
            *bucket = match bucket {
                Some(bucket) => bucket.changed(per_second, burst, now),
                None => Bucket::new(per_second, burst),
            };
        }
    }

    fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
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

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_change_after_an_idle_time_neither_stalls_nor_pays_for_that_time() {
        let start = Instant::now();
        let later = start + Duration::from_secs(10);
        let take = |group: &SharedTraffic, at| group.take(Direction::Read, usize::MAX, at).unwrap_or(0);
        let all = |group: &SharedTraffic, at| (0..3).map(|_| take(group, at)).sum::<usize>();
        let limits = |rate| TrafficLimits::new().read(rate).read_burst(100_000);

        let group = SharedTraffic::new(limits(1_000));
        while take(&group, start) > 0 {}
        group.set(limits(1_000_000));
        assert_eq!(all(&group, later), 10_000, "the idle time counts at the old rate");

        let group = SharedTraffic::new(limits(1_000_000));
        while take(&group, start) > 0 {}
        group.set(limits(10_000));
        assert!(all(&group, later) > 0, "the bucket was full again before the change");
    }
}
