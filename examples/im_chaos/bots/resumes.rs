//! `PlannedResume`: a resume that a fault plans, with the expected answer.

use super::{Crowd, lock, state::Place};
use crate::journal::Event;
use netwheel::broker::Position;

/// How far a position is ahead of the last message that the bot has received.
const AHEAD: u64 = 1_000_000;

/// The position with which bots resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The position of the last message. The bots must continue there.
    Own,
    /// The position of the last message, behind which messages have left the history.
    Trimmed,
    /// A position that the room has not reached.
    Ahead,
    /// The position of another user. Half of the bots use the token and the position of a user in
    /// their room. The other bots use the position of a user in another room.
    Foreign,
}

/// How one bot resumes the next time.
#[derive(Debug)]
pub(super) struct PlannedResume {
    how: Resume,
    /// Token and position of another user.
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
    /// Plans the next resume of the first `bots` bots. Bots that are connecting keep their own
    /// position.
    pub(crate) fn plan_resumes(&self, bots: u32, how: Resume) {
        let rooms = self.shared.manners.rooms;
        for number in 0..bots {
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
            }
        }
    }

    /// Returns the token and the position of a bot.
    fn other(&self, number: u32) -> (String, Option<Position>) {
        let bot = lock(&self.shared.bots[number as usize % self.shared.bots.len()]);
        (bot.token.clone(), bot.position)
    }

    /// Makes the first `bots` bots stay away after the end of their connections.
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
