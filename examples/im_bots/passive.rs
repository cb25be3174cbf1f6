//! Records about the passive bots.
//!
//! Such a bot joins a room and receives the number of messages to it instead of messages. In the
//! end the number must be that of the messages that were said. The bots update these records on
//! their loops, and the main thread reads them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// All passive bots by their numbers.
#[derive(Default)]
pub(crate) struct Passives(Mutex<BTreeMap<usize, Passive>>);

#[derive(Debug, Clone, Copy)]
struct Passive {
    room: u32,
    /// The number of messages when the bot became passive.
    since: u64,
    /// The last number.
    total: u64,
    /// How many numbers it received.
    numbers: u64,
}

/// Summary of all passive bots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) bots: u64,
    /// Numbers that they received.
    pub(crate) numbers: u64,
    /// Bots whose last number is lower than the number of messages.
    pub(crate) behind: u64,
}

impl Passives {
    pub(crate) fn enter(&self, bot: usize, room: u32, total: u64) {
        self.lock().insert(bot, Passive { room, since: total, total, numbers: 0 });
    }

    /// Records a number that the server has sent.
    pub(crate) fn note(&self, bot: usize, total: u64) {
        if let Some(passive) = self.lock().get_mut(&bot) {
            passive.total = total;
            passive.numbers += 1;
        }
    }

    /// Returns the summary, given the number of messages `said` in each room.
    pub(crate) fn counted(&self, said: &[u64]) -> Counted {
        let mut counted = Counted::default();
        for passive in self.lock().values() {
            let said = said.get(passive.room as usize).copied().unwrap_or(0);
            counted.bots += 1;
            counted.numbers += passive.numbers;
            // Other clients may talk in the room, too.
            counted.behind += u64::from(passive.total.saturating_sub(passive.since) < said);
        }
        counted
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Passive>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_must_include_all_messages() {
        let passives = Passives::default();
        for (bot, total) in [(0, 5), (1, 0), (2, 7)] {
            passives.enter(bot, 1, total);
        }
        passives.note(0, 10);
        passives.note(0, 15);
        passives.note(1, 9);
        assert_eq!(passives.counted(&[0, 10]), Counted { bots: 3, numbers: 3, behind: 2 });
        assert_eq!(passives.counted(&[]).behind, 0);
    }
}
