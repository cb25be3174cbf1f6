//! What happened in each second of a run.
//!
//! The loops of the clients and the main thread write. A round trip belongs to the second in which
//! its message was sent, so a second is complete when its last message is answered.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Seconds that are recorded. Later events count for the last one.
const MAX_SECONDS: usize = 3600;

/// Events of one second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Second {
    /// Attempts that began.
    pub(crate) attempts: u64,
    /// Clients of the storm that got in.
    pub(crate) entered: u64,
    /// Attempts that were refused with a time to come back.
    pub(crate) refused_with_hint: u64,
    /// Attempts that were refused, or whose connection the server closed.
    pub(crate) refused: u64,
    /// Attempts that the client gave up.
    pub(crate) gave_up: u64,
    /// Clients of the storm that were in and lost their connection.
    pub(crate) dropped: u64,
    /// Established clients that lost their connection.
    pub(crate) lost: u64,
    /// Clients of the storm that are not in, at the end of the second.
    pub(crate) waiting: u64,
    /// Messages of established clients.
    pub(crate) said: u64,
    /// Round trips of the answered messages, in microseconds.
    pub(crate) round_trips: Vec<u32>,
}

#[derive(Default)]
pub(crate) struct Timeline(Mutex<Vec<Second>>);

impl Timeline {
    fn lock(&self) -> MutexGuard<'_, Vec<Second>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the second of a time since the start of the run.
    pub(crate) fn note(&self, at: Duration, change: impl FnOnce(&mut Second)) {
        let number = usize::try_from(at.as_secs()).unwrap_or(usize::MAX).min(MAX_SECONDS - 1);
        let mut seconds = self.lock();
        if seconds.len() <= number {
            seconds.resize(number + 1, Second::default());
        }
        change(&mut seconds[number]);
    }

    pub(crate) fn note_round_trip(&self, said: Duration, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.note(said, |second| second.round_trips.push(micros));
    }

    /// Returns all seconds, with their round trips in ascending order.
    pub(crate) fn seconds(&self) -> Vec<Second> {
        let mut seconds = self.lock().clone();
        seconds.iter_mut().for_each(|second| second.round_trips.sort_unstable());
        seconds
    }
}

/// Returns a quantile of round trips in ascending order, of which `said` messages should have one.
/// A message without an answer counts as the slowest; `None` if the quantile is one of these.
pub(crate) fn quantile(round_trips: &[u32], said: u64, quantile: f64) -> Option<u32> {
    let said = usize::try_from(said).unwrap_or(usize::MAX).max(round_trips.len());
    let rank = (said as f64 * quantile).ceil() as usize;
    round_trips.get(rank.clamp(1, said.max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_an_answer_is_the_slowest() {
        let round_trips: Vec<u32> = (1..=98).collect();
        assert_eq!(quantile(&round_trips, 98, 0.5), Some(49));
        assert_eq!(quantile(&round_trips, 100, 0.98), Some(98));
        assert_eq!(quantile(&round_trips, 100, 0.99), None);
        assert_eq!(quantile(&[], 0, 0.5), None);
        assert_eq!(quantile(&[7], 1, 0.0), Some(7));
    }

    #[test]
    fn a_round_trip_belongs_to_the_second_of_its_message() {
        let timeline = Timeline::default();
        timeline.note_round_trip(Duration::from_millis(2900), Duration::from_millis(1500));
        timeline.note_round_trip(Duration::from_millis(2100), Duration::from_millis(3));
        timeline.note(Duration::MAX, |second| second.lost += 1);
        let seconds = timeline.seconds();
        assert_eq!(seconds[2].round_trips, [3000, 1_500_000]);
        assert_eq!((seconds.len(), seconds[MAX_SECONDS - 1].lost), (MAX_SECONDS, 1));
    }
}
