//! Records about the bots that stop reading.
//!
//! Such a bot joins a room and does not read until the others have stopped talking. By then the
//! server has either closed it, or has dropped some lines and reports their number. A loss that is
//! not reported is a fault. The bots update these records on their loops, and the main thread reads
//! them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// All slow bots by their numbers.
#[derive(Default)]
pub(crate) struct Slows(Mutex<BTreeMap<usize, Slow>>);

#[derive(Debug, Clone, Copy, Default)]
struct Slow {
    room: u32,
    /// Messages to its room that it received.
    heard: u64,
    /// Lines of any type that the server reported as dropped.
    missed: u64,
    closed: bool,
    /// The server sent a reason before it closed the connection.
    with_bye: bool,
}

/// Summary of all slow bots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fates {
    pub(crate) slow: u64,
    pub(crate) closed: u64,
    pub(crate) with_bye: u64,
    /// Bots that were notified of missed lines and are still connected.
    pub(crate) told: u64,
    pub(crate) missed: u64,
    /// Bots that received all messages.
    pub(crate) kept_up: u64,
    /// Bots that missed messages without a notification and without being closed.
    pub(crate) left_to_guess: u64,
}

impl Slows {
    pub(crate) fn enter(&self, bot: usize, room: u32) {
        self.lock().insert(bot, Slow { room, ..Slow::default() });
    }

    /// Records a message to its room that the bot had not received before.
    pub(crate) fn note_heard(&self, bot: usize) {
        self.change(bot, |slow| slow.heard += 1);
    }

    /// Records the total number of missed lines, as reported by the server.
    pub(crate) fn note_missed(&self, bot: usize, total: u64) {
        self.change(bot, |slow| slow.missed = total);
    }

    pub(crate) fn note_closed(&self, bot: usize, with_bye: bool) {
        self.change(bot, |slow| (slow.closed, slow.with_bye) = (true, with_bye));
    }

    /// Returns a number that grows with every recorded event.
    pub(crate) fn progress(&self) -> u64 {
        self.lock().values().map(|slow| slow.heard + slow.missed + u64::from(slow.closed)).sum()
    }

    /// Returns the summary, given the number of messages `said` in each room.
    pub(crate) fn fates(&self, said: &[u64]) -> Fates {
        let mut fates = Fates::default();
        for slow in self.lock().values() {
            let said = said.get(slow.room as usize).copied().unwrap_or(0);
            fates.slow += 1;
            fates.with_bye += u64::from(slow.with_bye);
            fates.missed += slow.missed;
            let fate = match slow {
                Slow { closed: true, .. } => &mut fates.closed,
                Slow { heard, .. } if *heard >= said => &mut fates.kept_up,
                Slow { heard, missed, .. } if heard + missed >= said => &mut fates.told,
                _ => &mut fates.left_to_guess,
            };
            *fate += 1;
        }
        fates
    }

    fn change(&self, bot: usize, change: impl FnOnce(&mut Slow)) {
        if let Some(slow) = self.lock().get_mut(&bot) {
            change(slow);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Slow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bot_that_missed_messages_must_be_notified_or_closed() {
        let slows = Slows::default();
        let heard = |bot, n: u64| (0..n).for_each(|_| slows.note_heard(bot));
        for bot in 0..5 {
            slows.enter(bot, 1);
        }
        heard(0, 10);
        heard(1, 7);
        slows.note_missed(1, 2);
        slows.note_missed(1, 3);
        heard(2, 7);
        slows.note_missed(2, 2);
        heard(3, 2);
        slows.note_closed(3, true);
        slows.note_closed(4, false);
        let expected =
            Fates { slow: 5, closed: 2, with_bye: 1, told: 1, missed: 5, kept_up: 1, left_to_guess: 1 };
        assert_eq!(slows.fates(&[0, 10]), expected);
    }
}
