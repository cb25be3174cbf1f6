//! Resumes that the schedule plans, with the answers that must come.

use super::{Crowd, lock, state::Place};
use crate::journal::Event;
use netwheel::broker::Position;

/// How far a position is ahead of the last message that the bot has received.
const AHEAD: u64 = 1_000_000;

/// The position with which bots resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    /// That of the last message. The bots must continue there.
    Own,
    /// The same, but messages behind it are not in the history any more.
    Trimmed,
    /// A position that the room has not reached.
    Ahead,
    /// That of another user: of half of the bots with the token of that user, who is in the same
    /// room, and of the others with the position of a user in another room.
    Foreign,
}

/// How one bot resumes the next time.
#[derive(Debug)]
pub(super) struct PlannedResume {
    how: Resume,
    /// Token and position of the other user, if they are not those of the bot.
    token: Option<String>,
    position: Option<Position>,
}

impl PlannedResume {
    /// Returns the token and the position that the bot sends, instead of its own ones.
    pub(super) fn claim(&self, token: &str, position: Position) -> (String, Position) {
        let position = match self.how {
            Resume::Ahead => Position::new(position.epoch, position.offset + AHEAD),
            _ => self.position.unwrap_or(position),
        };
        (self.token.clone().unwrap_or_else(|| token.to_owned()), position)
    }

    /// Returns the record of this resume.
    pub(super) fn event(&self) -> Event {
        let must_recover = self.how == Resume::Own;
        Event::Resumed { must_recover, is_own: matches!(self.how, Resume::Own | Resume::Trimmed) }
    }
}

impl Crowd {
    /// Plans the next resume of the first `bots` bots. Returns how many bots will resume: those that
    /// are in their rooms or stay away.
    pub(crate) fn plan_resumes(&self, bots: u32, how: Resume) -> u32 {
        let rooms = self.shared.manners.rooms;
        let mut planned = 0;
        for number in 0..bots {
            // The other user. Bots behind the first ones do not resume, so its token is valid.
            let is_other_room = rooms > 1 && (number / rooms).is_multiple_of(2);
            let (token, position) = match how {
                Resume::Foreign if is_other_room => (None, self.other(number + 1).1),
                Resume::Foreign => {
                    let (token, position) = self.other(number + rooms);
                    (Some(token), position)
                }
                _ => (None, None),
            };
            let Some(bot) = self.shared.bots.get(number as usize) else { break };
            let mut bot = lock(bot);
            if !matches!(bot.place, Place::Entering) && bot.position.is_some() {
                bot.planned = Some(PlannedResume { how, token, position });
                planned += 1;
            }
        }
        planned
    }

    /// Returns the token and the position of a bot.
    fn other(&self, number: u32) -> (String, Option<Position>) {
        let bot = lock(&self.shared.bots[number as usize % self.shared.bots.len()]);
        (bot.token.clone(), bot.position)
    }

    /// Sets whether the first `bots` bots stay away after the end of their connections.
    pub(crate) fn stay_away(&self, bots: u32) {
        self.shared.bots.iter().take(bots as usize).for_each(|bot| lock(bot).stays_away = true);
    }

    /// Sets whether the first `bots` bots return to the same node without a delay.
    pub(crate) fn hurry(&self, bots: u32, on: bool) {
        self.shared.bots.iter().take(bots as usize).for_each(|bot| lock(bot).returns_at_once = on);
    }

    /// Resets the connections of the first `bots` bots.
    pub(crate) fn reset(&self, bots: u32) {
        for bot in self.shared.bots.iter().take(bots as usize) {
            if let Place::Inside(channel) = &lock(bot).place {
                channel.reset();
            }
        }
    }
}
