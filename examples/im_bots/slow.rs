//! The bots that stop reading, and what becomes of them.
//!
//! Such a bot joins a room like others, then leaves unread what it is sent until all talking is over. By then the server
//! has closed it, or has dropped some lines and tells it how many. What must not be is that it misses something and hears
//! nothing of that. Counted by the bots on their loops, read by the main thread.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// All of them, by their numbers.
#[derive(Default)]
pub(crate) struct Slows(Mutex<HashMap<usize, Slow>>);

#[derive(Debug, Clone, Copy, Default)]
struct Slow {
    room: u32,
    /// Messages of its room.
    heard: u64,
    /// Lines, of whatever type, that it was told it has missed.
    missed: u64,
    closed: bool,
    /// It was told why it was closed.
    with_bye: bool,
}

/// How they fared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fates {
    pub(crate) slow: u64,
    pub(crate) closed: u64,
    pub(crate) with_bye: u64,
    /// Those that were told that they have missed something, and are there still.
    pub(crate) told: u64,
    pub(crate) missed: u64,
    /// Those that have heard everything.
    pub(crate) kept_up: u64,
    /// Those that have neither heard everything, nor been told what is missing, nor been closed.
    pub(crate) left_to_guess: u64,
}

impl Slows {
    pub(crate) fn enter(&self, bot: usize, room: u32) {
        self.lock().insert(bot, Slow { room, ..Slow::default() });
    }

    /// A message of its room, which it did not have before.
    pub(crate) fn note_heard(&self, bot: usize) {
        self.change(bot, |slow| slow.heard += 1);
    }

    /// The server says that it has missed so many lines in all.
    pub(crate) fn note_missed(&self, bot: usize, total: u64) {
        self.change(bot, |slow| slow.missed = total);
    }

    pub(crate) fn note_closed(&self, bot: usize, with_bye: bool) {
        self.change(bot, |slow| (slow.closed, slow.with_bye) = (true, with_bye));
    }

    /// Grows with everything that happens to them.
    pub(crate) fn progress(&self) -> u64 {
        self.lock().values().map(|slow| slow.heard + slow.missed + u64::from(slow.closed)).sum()
    }

    /// How they fared if so many messages were `said` in each room.
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

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Slow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_misses_something_has_to_be_told_or_closed() {
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
