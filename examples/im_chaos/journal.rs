//! The records of a run: the messages to each bot, in the order of their arrival.

use netwheel::broker::Position;
use std::{collections::HashSet, fmt::Write, time::Duration};

/// A record of one bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Time since the start of the run.
    pub(crate) at: Duration,
    pub(crate) bot: u32,
    pub(crate) event: Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The bot is in its room, and messages behind this position follow.
    Joined { position: Position, recovered: Recovered },
    /// The bot has resumed as planned. The answer follows.
    Resumed {
        /// Whether the bot must continue where it was.
        must_recover: bool,
        /// Whether the position was of this bot and room.
        is_own: bool,
    },
    /// Messages are missing. Those behind this position follow.
    Gap { position: Position },
    /// A message with the number that its sender has given it.
    Received { position: Position, sender: u32, number: u32 },
    /// The bot's own message is stored.
    Accepted { position: Position, number: u32 },
    /// The connection has ended.
    Left {
        /// Whether the bot stays away for a time.
        stays_away: bool,
    },
}

/// Whether a bot continues where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovered {
    /// The first join.
    New,
    Yes,
    /// Messages are missing.
    No,
}

/// The members that a node has listed for a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Census {
    /// When the list was asked for, since the start of the run.
    pub(crate) asked: Duration,
    /// When the list was received.
    pub(crate) at: Duration,
    pub(crate) room: u32,
    /// Numbers of the bots, in ascending order.
    pub(crate) users: Vec<u32>,
}

/// All records of a run.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) entries: Vec<Entry>,
    pub(crate) censuses: Vec<Census>,
    /// The positions of all messages in the store at the end, for nodes without epochs.
    pub(crate) stored: Option<HashSet<Position>>,
}

impl Journal {
    /// Returns the entries as CSV.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from("seconds,bot,event,epoch,offset,sender,number\n");
        for Entry { at, bot, event } in &self.entries {
            let (what, position, sender, number) = match *event {
                Event::Joined { position, recovered: Recovered::New } => {
                    ("joined", Some(position), None, None)
                }
                Event::Joined { position, recovered: Recovered::Yes } => {
                    ("recovered", Some(position), None, None)
                }
                Event::Joined { position, recovered: Recovered::No } => {
                    ("not recovered", Some(position), None, None)
                }
                Event::Gap { position } => ("gap", Some(position), None, None),
                Event::Received { position, sender, number } => {
                    ("received", Some(position), Some(sender), Some(number))
                }
                Event::Accepted { position, number } => {
                    ("accepted", Some(position), Some(*bot), Some(number))
                }
                Event::Resumed { .. } => ("resumed", None, None, None),
                Event::Left { .. } => ("left", None, None, None),
            };
            let or_empty = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
            let [epoch, offset] = [position.map(|at| at.epoch), position.map(|at| at.offset)].map(or_empty);
            let [sender, number] = [sender, number].map(|value| or_empty(value.map(u64::from)));
            let seconds = at.as_secs_f64();
            let _ = writeln!(text, "{seconds:.3},{bot},{what},{epoch},{offset},{sender},{number}");
        }
        text
    }
}
