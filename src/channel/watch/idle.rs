//! Idle detection: when bytes last came in, and when the kernel last took some.
//!
//! Times are those of the turn in which bytes moved, which is when the poll returned. Reads and
//! writes only store that time ([`Traffic`]); due events are computed from it when the watch
//! expires.
//!
//! Invariants: an event is never early. Repeated events keep their distance from the first, and
//! missed ones are reported once. Pure: `watch` keeps the entry on the loop's wheel. Runs on the
//! channel's loop.

use crate::{clock::nanos, sync::Random};
use std::{fmt, rc::Rc, time::Duration};

/// The kind of inactivity.
///
/// A connection has two directions, so there will be no other kinds, and a `match` needs no
/// wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdleState {
    /// No bytes were received from the peer.
    Reader,
    /// The kernel accepted no bytes from the channel.
    Writer,
    /// Bytes moved in neither direction.
    All,
}

/// An event for [`Handler::idle`](crate::Handler::idle) after a channel was idle for the configured
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct IdleEvent {
    /// The kind of inactivity.
    pub state: IdleState,
    /// Whether this is the first event of its kind since the last traffic of that kind.
    pub first: bool,
}

impl IdleEvent {
    /// Creates an event, for tests of handlers.
    pub fn new(state: IdleState, first: bool) -> Self {
        IdleEvent { state, first }
    }
}

impl fmt::Display for IdleEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} idle{}", self.state, if self.first { ", first" } else { "" })
    }
}

/// The idle timeouts of a channel. Each kind is off until it is set.
///
/// A timeout of zero turns the kind off. Other timeouts below one millisecond are raised to one
/// millisecond. Events repeat while the channel stays idle, one timeout apart. Events that a busy
/// loop missed are reported once. Events are never early. They are late by at most one tick of the
/// loop's wheel (100 ms by default) plus the loop's lag and the [jitter](IdleTimeouts::jitter).
///
/// Unread bytes in the socket count as activity: the loop checks for them before it reports an
/// event. This includes bytes that the program does not read because auto-read is off.
///
/// Each read and each write stores one number, regardless of the number of channels. Each channel
/// has one entry on the wheel for all its timeouts.
///
/// ```
/// use netwheel::IdleTimeouts;
/// use std::time::Duration;
///
/// let timeouts = IdleTimeouts::new().reader(Duration::from_secs(60)).writer(Duration::from_secs(20));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[doc(alias = "IdleStateHandler")]
#[doc(alias = "ReadTimeoutHandler")]
pub struct IdleTimeouts {
    pub(crate) reader: u64,
    pub(crate) writer: u64,
    pub(crate) all: u64,
    /// The upper bound of the random delay of each event.
    pub(crate) jitter: u64,
}

impl IdleTimeouts {
    /// Returns settings without timeouts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time without received bytes after which an event is reported.
    pub fn reader(mut self, timeout: Duration) -> Self {
        self.reader = limit(timeout);
        self
    }

    /// Sets the time without sent bytes after which an event is reported, for example to send a
    /// heartbeat.
    ///
    /// A large write that drains slowly is not idle, because every part that the kernel accepts
    /// counts.
    pub fn writer(mut self, timeout: Duration) -> Self {
        self.writer = limit(timeout);
        self
    }

    /// Sets the time without bytes in either direction after which an event is reported.
    pub fn all(mut self, timeout: Duration) -> Self {
        self.all = limit(timeout);
        self
    }

    /// Delays each event by a random time below `window`, in whole milliseconds. Zero by default.
    ///
    /// Use this for servers whose connections were all established at the same moment, for example
    /// after a restart or an outage. Without jitter they would all be pinged in the same
    /// millisecond from then on. One tenth of the shortest timeout is usually enough.
    pub fn jitter(mut self, window: Duration) -> Self {
        self.jitter = nanos(window);
        self
    }

    /// Returns whether all timeouts are off.
    pub fn is_off(&self) -> bool {
        self.reader == 0 && self.writer == 0 && self.all == 0
    }
}

fn limit(timeout: Duration) -> u64 {
    if timeout.is_zero() { 0 } else { nanos(timeout.max(Duration::from_millis(1))) }
}

/// The times at which bytes last moved. The only part of idle detection that the hot path touches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

/// The idle detection of one channel.
#[derive(Debug)]
pub(crate) struct Idle {
    /// `None` if no timeout is set. Shared by channels with the same timeouts, usually most
    /// channels of a server.
    timeouts: Option<Rc<IdleTimeouts>>,
    /// The random delay of the next event in milliseconds, which is the resolution of the wheel.
    postponed: u32,
    /// For each kind: the event was reported, and no byte had moved since then when `since` was
    /// set. So the next event is not the first one unless bytes move after `since`. A flag takes
    /// less memory than the time of the report, and every channel with timeouts has it.
    notified: [bool; 3],
    /// For each kind: the time of the creation, a reset, or the last event. The idle time starts
    /// there if that is later than the last traffic.
    since: [u64; 3],
}

const KINDS: [IdleState; 3] = [IdleState::Reader, IdleState::Writer, IdleState::All];

impl Idle {
    /// Creates idle detection without timeouts.
    pub(crate) fn off(now: u64) -> Self {
        Idle { timeouts: None, postponed: 0, notified: [false; 3], since: [now; 3] }
    }

    pub(crate) fn new(timeouts: Option<Rc<IdleTimeouts>>, now: u64, random: &Random) -> Self {
        let postponed = timeouts.as_ref().map_or(0, |timeouts| postponement(**timeouts, random));
        Idle { timeouts, postponed, ..Self::off(now) }
    }

    pub(crate) fn timeouts(&self) -> IdleTimeouts {
        self.timeouts.as_ref().map_or_else(IdleTimeouts::new, |timeouts| **timeouts)
    }

    /// Changes the timeouts. The elapsed idle time still counts.
    pub(crate) fn set(&mut self, timeouts: Option<Rc<IdleTimeouts>>, random: &Random) {
        let before = self.timeouts().jitter;
        self.timeouts = timeouts;
        if self.timeouts().jitter != before {
            self.postponed = postponement(self.timeouts(), random);
        }
    }

    /// Restarts the idle time of one kind at `now`, without making the next event a first one.
    pub(crate) fn reset(&mut self, kind: IdleState, traffic: Traffic, now: u64) {
        self.reset_one(kind as usize, traffic, now);
        if kind != IdleState::All {
            self.reset_one(IdleState::All as usize, traffic, now);
        }
    }

    fn reset_one(&mut self, kind: usize, traffic: Traffic, now: u64) {
        self.notified[kind] = !self.would_be_first(kind, traffic);
        self.since[kind] = now;
    }

    /// Returns whether the next event is a first one if no more bytes move. Traffic before a report
    /// is older than `since` by at least the timeout. Traffic at the time of a report came after
    /// it, because otherwise no event would have been due.
    fn would_be_first(&self, kind: usize, traffic: Traffic) -> bool {
        !self.notified[kind] || Self::last_traffic(kind, traffic) >= self.since[kind]
    }

    pub(crate) fn watches(&self, kind: IdleState) -> bool {
        self.timeout(kind as usize).is_some()
    }

    fn timeout(&self, kind: usize) -> Option<u64> {
        let timeouts = self.timeouts.as_ref()?;
        let timeout = [timeouts.reader, timeouts.writer, timeouts.all][kind];
        (timeout > 0).then_some(timeout)
    }

    fn last_traffic(kind: usize, traffic: Traffic) -> u64 {
        [traffic.read, traffic.written, traffic.read.max(traffic.written)][kind]
    }

    /// Returns the start of the idle time of one kind.
    fn from(&self, kind: usize, traffic: Traffic) -> u64 {
        Self::last_traffic(kind, traffic).max(self.since[kind])
    }

    /// Returns the deadline of one kind.
    fn due(&self, kind: usize, traffic: Traffic) -> Option<u64> {
        let due = self.from(kind, traffic).saturating_add(self.timeout(kind)?);
        Some(due.saturating_add(u64::from(self.postponed) * MILLISECOND))
    }

    /// Returns the time of the next event if no more bytes move.
    pub(crate) fn deadline(&self, traffic: Traffic) -> Option<u64> {
        (0..3).filter_map(|kind| self.due(kind, traffic)).min()
    }

    /// Returns whether an event is due that input would have postponed.
    pub(crate) fn waits_for_peer(&self, traffic: Traffic, now: u64) -> bool {
        const OF_READING: [IdleState; 2] = [IdleState::Reader, IdleState::All];
        OF_READING.iter().any(|kind| self.due(*kind as usize, traffic).is_some_and(|due| due <= now))
    }

    /// Returns the events that are due now: reader, writer, all.
    pub(crate) fn take_due(&mut self, traffic: Traffic, now: u64, random: &Random) -> [Option<IdleEvent>; 3] {
        let events = std::array::from_fn(|kind| {
            if self.due(kind, traffic)? > now {
                return None;
            }
            let first = self.would_be_first(kind, traffic);
            self.notified[kind] = true;
            // A whole number of timeouts instead of `now`, so that the delays of ticks do not add
            // up.
            let (from, timeout) = (self.from(kind, traffic), self.timeout(kind)?);
            self.since[kind] = now - (now - from) % timeout;
            Some(IdleEvent { state: KINDS[kind], first })
        });
        if events.iter().any(Option::is_some) {
            self.postponed = postponement(self.timeouts(), random);
        }
        events
    }
}

/// Returns a random delay in milliseconds, at most 49 days.
fn postponement(timeouts: IdleTimeouts, random: &Random) -> u32 {
    if timeouts.jitter == 0 {
        return 0;
    }
    u32::try_from(random.below(timeouts.jitter) / MILLISECOND).unwrap_or(u32::MAX)
}

const MILLISECOND: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const QUIET: Traffic = Traffic { read: 0, written: 0 };

    fn watching(timeouts: IdleTimeouts, now: u64) -> Idle {
        Idle::new(Some(Rc::new(timeouts)), now, &Random::new(1))
    }

    fn reader() -> Idle {
        watching(IdleTimeouts::new().reader(Duration::from_secs(1)), 0)
    }

    fn due(idle: &mut Idle, traffic: Traffic, now: u64) -> [Option<IdleEvent>; 3] {
        idle.take_due(traffic, now, &Random::new(1))
    }

    fn first_of(events: [Option<IdleEvent>; 3]) -> Option<IdleEvent> {
        events.into_iter().flatten().next()
    }

    #[test]
    fn i_11_zero_is_off_and_tiny_times_are_raised() {
        assert!(IdleTimeouts::new().reader(Duration::ZERO).is_off());
        assert_eq!(IdleTimeouts::new().all(Duration::from_nanos(1)).all, 1_000_000);
        assert_eq!(watching(IdleTimeouts::new(), 0).deadline(QUIET), None);
    }

    #[test]
    fn only_the_first_event_after_traffic_is_marked_first() {
        let mut idle = reader();
        let mut firsts = Vec::new();
        for second in 1..=3 {
            firsts.push(first_of(due(&mut idle, QUIET, second * SECOND)).unwrap().first);
        }
        let traffic = Traffic { read: 3 * SECOND + 1, written: 0 };
        assert_eq!(first_of(due(&mut idle, traffic, 4 * SECOND)), None);
        firsts.push(first_of(due(&mut idle, traffic, 4 * SECOND + 1)).unwrap().first);
        assert_eq!(firsts, [true, false, false, true]);
    }

    #[test]
    fn a_reset_postpones_but_does_not_make_it_first() {
        let mut idle = reader();
        assert!(first_of(due(&mut idle, QUIET, SECOND)).unwrap().first);
        idle.reset(IdleState::Reader, QUIET, SECOND + SECOND / 2);
        assert_eq!(first_of(due(&mut idle, QUIET, 2 * SECOND)), None);
        assert!(!first_of(due(&mut idle, QUIET, 3 * SECOND)).unwrap().first);
    }

    /// The result equals that of an implementation that stores the times of the reports: an event
    /// is a first one if bytes have moved at or after the last report.
    #[test]
    fn first_events_are_found_without_storing_the_time_of_the_last() {
        const STEPS: u32 = 7;
        let timeouts = IdleTimeouts::new().reader(Duration::from_secs(1)).all(Duration::from_millis(1500));
        for mut script in 0..4u32.pow(STEPS) {
            let (mut idle, mut traffic, mut reported, mut now) = (watching(timeouts, 0), QUIET, [0; 3], 0);
            for _ in 0..STEPS {
                match script % 4 {
                    0 => now += SECOND,
                    1 => now += SECOND / 2,
                    2 => traffic.read = now,
                    _ => idle.reset(IdleState::Reader, traffic, now),
                }
                script /= 4;
                for (kind, event) in due(&mut idle, traffic, now).into_iter().enumerate() {
                    let Some(event) = event else { continue };
                    assert_eq!(event.first, Idle::last_traffic(kind, traffic) >= reported[kind]);
                    reported[kind] = now;
                }
            }
        }
    }

    #[test]
    fn all_is_reset_by_either_side() {
        let idle = watching(IdleTimeouts::new().all(Duration::from_secs(1)), 0);
        assert_eq!(idle.deadline(Traffic { read: 5, written: 0 }), Some(SECOND + 5));
        assert_eq!(idle.deadline(Traffic { read: 0, written: 7 }), Some(SECOND + 7));
    }

    #[test]
    fn far_deadlines_saturate() {
        let idle = watching(IdleTimeouts::new().reader(Duration::MAX), 10);
        assert_eq!(idle.deadline(QUIET), Some(u64::MAX));
    }
}
