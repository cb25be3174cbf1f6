//! Counters that all bots update.

use hdrhistogram::Histogram;
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A thread-safe counter.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) connected: Count,
    pub(crate) logged_in: Count,
    pub(crate) joined: Count,
    /// Messages received, counted once per member and without copies.
    pub(crate) received: Count,
    pub(crate) doubled: Count,
    pub(crate) out_of_order: Count,
    pub(crate) pings_answered: Count,
    /// Connections of bots other than silent ones that ended before the run did.
    pub(crate) dropped: Count,
    latency: Mutex<Option<Histogram<u64>>>,
    silent: Mutex<Silent>,
}

/// Counters for the silent bots.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Silent {
    pub(crate) logged_in: u64,
    pub(crate) dropped: u64,
    /// Silent bots that were closed without a `bye`.
    pub(crate) without_bye: u64,
    /// Shortest time between the login, which was the last message sent, and the close.
    pub(crate) shortest: Option<Duration>,
    pub(crate) longest: Option<Duration>,
    /// The server's idle timeout, as sent in `welcome`.
    pub(crate) idle: Duration,
    /// The idle timeout plus the allowed lateness.
    pub(crate) allowed: Duration,
    /// Latest time at which the last of them must have been closed.
    pub(crate) until: Option<Instant>,
}

/// One tick of the server's wheel, by which an idle timeout may be late in any case.
const TICK: Duration = Duration::from_millis(100);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    /// Records the latency of a message.
    pub(crate) fn note_latency(&self, latency: Duration) {
        let mut histogram = lock(&self.latency);
        let histogram = histogram.get_or_insert_with(new_histogram);
        histogram.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn latency(&self) -> Histogram<u64> {
        lock(&self.latency).clone().unwrap_or_else(new_histogram)
    }

    pub(crate) fn silent(&self) -> Silent {
        *lock(&self.silent)
    }

    /// Records the login of a silent bot. The server may exceed its idle timeout by one tick and
    /// `grace`.
    pub(crate) fn note_silent_login(&self, at: Instant, idle: Duration, grace: Duration) {
        let mut silent = lock(&self.silent);
        silent.logged_in += 1;
        silent.idle = idle;
        silent.allowed = idle.saturating_add(TICK).saturating_add(grace);
        silent.until = silent.until.max(at.checked_add(silent.allowed));
    }

    pub(crate) fn note_silent_drop(&self, after: Duration, with_bye: bool) {
        let mut silent = lock(&self.silent);
        silent.dropped += 1;
        silent.without_bye += u64::from(!with_bye);
        silent.shortest = Some(silent.shortest.map_or(after, |shortest| shortest.min(after)));
        silent.longest = silent.longest.max(Some(after));
    }
}

fn new_histogram() -> Histogram<u64> {
    // Up to ten minutes in microseconds, with three significant digits.
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("these bounds are in order")
}

/// Message numbers that one bot has received from each talker in its room.
#[derive(Default)]
pub(crate) struct Heard {
    /// Highest number from each talker, indexed by its place in the room.
    last: Vec<u32>,
    /// Messages that were overtaken. They are lost unless they arrive late.
    missing: Vec<(u32, u32)>,
}

/// Classification of a message relative to the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// No message of this talker with a higher number has been received.
    InOrder,
    OutOfOrder,
    Doubled,
}

impl Heard {
    /// Records message `number` of the talker at `place`. Numbers start at 1.
    pub(crate) fn note(&mut self, place: u32, number: u32) -> Arrival {
        let at = place as usize;
        if self.last.len() <= at {
            self.last.resize(at + 1, 0);
        }
        let last = self.last[at];
        if number > last {
            self.missing.extend((last + 1..number).map(|overtaken| (place, overtaken)));
            self.last[at] = number;
            return Arrival::InOrder;
        }
        match self.missing.iter().position(|&missing| missing == (place, number)) {
            Some(at) => {
                self.missing.swap_remove(at);
                Arrival::OutOfOrder
            }
            None => Arrival::Doubled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arrival::{Doubled, InOrder, OutOfOrder};

    fn arrivals(numbers: &[u32]) -> Vec<Arrival> {
        let mut heard = Heard::default();
        numbers.iter().map(|&number| heard.note(3, number)).collect()
    }

    #[test]
    fn numbers_in_order_are_accepted_once() {
        assert_eq!(arrivals(&[1, 2, 3]), [InOrder; 3]);
        assert_eq!(arrivals(&[1, 1, 2, 1]), [InOrder, Doubled, InOrder, Doubled]);
    }

    #[test]
    fn an_overtaken_message_is_out_of_order_once_and_then_a_copy() {
        assert_eq!(arrivals(&[3, 1, 2, 2]), [InOrder, OutOfOrder, OutOfOrder, Doubled]);
    }

    #[test]
    fn talkers_are_tracked_separately() {
        let mut heard = Heard::default();
        assert_eq!([heard.note(0, 1), heard.note(5, 1), heard.note(0, 1)], [InOrder, InOrder, Doubled]);
    }
}
