//! The load of a loop: its connections, and how long a new task would wait.
//!
//! A connection is counted as soon as its loop is chosen. The count is kept by an [`Assignment`],
//! which travels with the connection: through the queue, the connect, the channel, and the
//! lingering socket. It is dropped after the handler and the socket. If the connection has a place
//! in a server, the assignment holds that too.
//!
//! The lag of a loop is the time of a turn times the number of turns that the queue may need. The
//! time of a turn is the longest recent one, which decays over about a second, or the running one
//! if that is longer. The loop notes when its poll returns and when it goes to sleep, using
//! existing clock readings. So the end of a turn that only did I/O is noted at the next poll.
//!
//! Invariants: there are never more connections than the limit, however many threads assign
//! concurrently. The count is exact wherever a connection ends. Any thread assigns, releases and
//! reads. Only the loop's thread notes the beginning and end of turns.

use crate::{admission::Admitted, sync::Permits};
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The bit of [`Load::since`] that is set while the loop sleeps.
const ASLEEP: u64 = 1 << 63;

/// The duration of a long turn decays within about `2^DECAY` nanoseconds: a second.
const DECAY: u32 = 30;

#[derive(Debug)]
pub(crate) struct Load {
    connections: Permits,
    weight: AtomicUsize,
    /// The duration of recent turns: a maximum that decays.
    turn: AtomicU64,
    /// The time as of which `turn` has decayed.
    noted: AtomicU64,
    /// When the running turn began. While the loop sleeps, when the last turn ended, with
    /// [`ASLEEP`].
    since: AtomicU64,
}

/// A connection's share of the load of its loop, and its place in its server. Dropping it releases
/// both.
pub(crate) struct Assignment {
    load: Arc<Load>,
    /// `None` if the weight is 1 and the server does not count its connections.
    more: Option<Box<More>>,
}

struct More {
    weight: u32,
    admitted: Option<Admitted>,
}

impl Load {
    pub(crate) fn new(limit: usize) -> Self {
        Load {
            connections: Permits::new(limit),
            weight: AtomicUsize::new(0),
            turn: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            // A loop whose thread has not started counts as asleep.
            since: AtomicU64::new(ASLEEP),
        }
    }

    /// Counts a connection that is on its way to the loop. Returns `None` if the limit is reached.
    pub(crate) fn assign(self: &Arc<Self>, weight: u32) -> Option<Assignment> {
        if !self.connections.take() {
            return None;
        }
        self.weight.fetch_add(weight as usize, Ordering::Relaxed);
        Some(Assignment { load: self.clone(), more: more(weight, None) })
    }

    /// Returns the maximum number of connections.
    pub(crate) fn limit(&self) -> usize {
        self.connections.limit()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.taken()
    }

    pub(crate) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    // ---- lag ------------------------------------------------------------------------------------

    /// Called when the loop's poll has returned.
    #[inline]
    pub(crate) fn turn_began(&self, now: u64) {
        // If the loop has not slept, its last turn ends only here.
        if self.since.load(Ordering::Relaxed) & ASLEEP == 0 {
            self.note(now);
        }
        self.since.store(now & !ASLEEP, Ordering::Relaxed);
    }

    /// Called when the loop is about to sleep, with the loop's latest clock reading.
    pub(crate) fn turn_ended(&self, now: u64) {
        self.note(now);
        self.since.store(now | ASLEEP, Ordering::Relaxed);
    }

    fn note(&self, now: u64) {
        self.turn.store(self.turn_time(now), Ordering::Relaxed);
        self.noted.store(now, Ordering::Relaxed);
    }

    /// Returns the duration of a turn as of `now`: the decayed maximum of recent turns, or the
    /// duration of the running turn if that is longer.
    pub(crate) fn turn_time(&self, now: u64) -> u64 {
        let since = self.since.load(Ordering::Relaxed);
        let passed = now.saturating_sub(self.noted.load(Ordering::Relaxed));
        let lately = faded(self.turn.load(Ordering::Relaxed), passed);
        if since & ASLEEP == 0 { lately.max(now.saturating_sub(since)) } else { lately }
    }
}

/// Returns `value` decayed by the passed time. The result decreases strictly until it is zero.
fn faded(value: u64, passed: u64) -> u64 {
    let lost = (u128::from(value) * u128::from(passed)).div_ceil(1 << DECAY);
    value.saturating_sub(u64::try_from(lost).unwrap_or(u64::MAX))
}

impl Assignment {
    /// Adds the connection's place in its server, which is released together with this assignment.
    pub(crate) fn with(mut self, admitted: Option<Admitted>) -> Self {
        self.more = more(self.weight(), admitted);
        self
    }

    /// Returns the connection's place in its server.
    pub(crate) fn admitted_mut(&mut self) -> Option<&mut Admitted> {
        self.more.as_mut()?.admitted.as_mut()
    }

    fn weight(&self) -> u32 {
        self.more.as_ref().map_or(1, |more| more.weight)
    }
}

fn more(weight: u32, admitted: Option<Admitted>) -> Option<Box<More>> {
    (weight != 1 || admitted.is_some()).then(|| Box::new(More { weight, admitted }))
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.load.connections.give_back();
        self.load.weight.fetch_sub(self.weight() as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Admission, Gate};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn an_assignment_counts_until_it_is_dropped() {
        let load = Arc::new(Load::new(2));
        let (light, heavy) = (load.assign(1).unwrap(), load.assign(9).unwrap());
        assert!(load.assign(1).is_none(), "the limit is reached");
        assert_eq!((load.connections(), load.weight()), (2, 10));
        drop(light);
        assert_eq!((load.connections(), load.weight()), (1, 9));
        drop(heavy);
        assert_eq!((load.connections(), load.weight()), (0, 0));
        assert!(load.assign(1).is_some());
    }

    #[test]
    fn dropping_an_assignment_releases_the_place_in_the_server() {
        let load = Arc::new(Load::new(2));
        let gate = Arc::new(Gate::new(Admission::new().max_connections(1)));
        for weight in [1, 5] {
            let admitted = gate.admit(None).unwrap();
            assert!(admitted.is_some());
            let assignment = load.assign(weight).unwrap().with(admitted);
            assert_eq!((load.connections(), load.weight()), (1, weight as usize));
            assert!(gate.admit(None).is_err(), "the connection occupies the only place");
            drop(assignment);
            assert_eq!((load.connections(), load.weight()), (0, 0));
        }
        assert!(gate.admit(None).is_ok());
    }

    #[test]
    fn a_running_turn_counts_immediately_and_sleep_does_not() {
        let load = Load::new(1);
        assert_eq!(load.turn_time(5 * SECOND), 0, "the loop was never started");
        load.turn_began(10 * SECOND);
        assert_eq!(load.turn_time(12 * SECOND), 2 * SECOND);
        load.turn_ended(12 * SECOND);
        assert_eq!(load.turn_time(12 * SECOND), 2 * SECOND);
        assert_eq!(load.turn_time(100 * SECOND), 0, "asleep, and the last turn is long ago");
        load.turn_began(100 * SECOND);
        assert_eq!(load.turn_time(100 * SECOND), 0);
    }

    #[test]
    fn a_long_turn_is_remembered_and_decays() {
        let load = Load::new(1);
        load.turn_began(0);
        load.turn_began(SECOND);
        load.turn_began(SECOND + SECOND / 10);
        let left = load.turn_time(SECOND + SECOND / 10);
        assert!((SECOND * 8 / 10..SECOND).contains(&left), "{left}");
        for n in 1..1000 {
            load.turn_began(SECOND + SECOND / 10 + n * SECOND / 100);
        }
        assert!(load.turn_time(11 * SECOND + SECOND / 10) <= SECOND / 50);
    }

    #[test]
    fn decay_reaches_zero() {
        assert_eq!(faded(1, 1), 0);
        assert_eq!(faded(u64::MAX, u64::MAX), 0);
        assert_eq!(faded(0, 5), 0);
        assert_eq!(faded(100, 0), 100);
    }
}
