//! `Client`: the messages that a client of a topic has, across all its connections.
//!
//! It is the reference model for the topic. The received lines are its only source.

use netwheel::{
    broker::{Joined, Missed, MissedCause, Position, store::History},
    testing::simulation::sometimes,
};
use std::collections::BTreeMap;

/// The first word of a line for a client.
pub(super) const GREETING: &str = "joined";
pub(super) const MESSAGE: &str = "message";
pub(super) const NOTICE: &str = "missed";

/// Encodes the greeting of a client.
pub(super) fn greeting(joined: &Joined) -> String {
    let Position { epoch, offset, .. } = joined.position;
    format!("{GREETING} {epoch} {offset} {}", joined.recovered)
}

/// Encodes a notice.
pub(super) fn notice(missed: &Missed) -> String {
    let Missed { seen, next, .. } = missed;
    let is_rewound = missed.cause == MissedCause::Rewound;
    format!("{NOTICE} {} {} {} {} {is_rewound}", seen.epoch, seen.offset, next.epoch, next.offset)
}

/// A client with the connections that it had one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Client {
    /// The node to which it connects, by its number.
    pub(super) at: usize,
    /// The position of the last message, from which it resumes.
    pub(super) seen: Option<Position>,
    /// Everything behind this offset was sent, or is in a gap.
    begin: u64,
    messages: BTreeMap<u64, (u64, String)>,
    /// The first and the last offset of messages that were announced as missing.
    gaps: Vec<(u64, u64)>,
}

impl Client {
    /// Creates a client that connects to a node for the first time.
    pub(super) fn new(at: usize) -> Self {
        Client { at, ..Client::default() }
    }

    /// Receives a line, and returns its message, if it has one.
    ///
    /// # Errors
    /// If it does not follow the line before.
    pub(super) fn receive(&mut self, line: &str) -> Result<Option<(Position, String)>, String> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| -> Result<u64, String> {
            words.get(at).and_then(|word| word.parse().ok()).ok_or(format!("{line:?} is not understood"))
        };
        let position = |at: usize| Ok::<_, String>(Position::new(number(at)?, number(at + 1)?));
        match words[0] {
            GREETING => {
                let begin = position(1)?;
                match self.seen {
                    Some(seen) if words[3] == "true" => {
                        if seen.offset != begin.offset {
                            return Err(format!("{line:?} after {seen}"));
                        }
                        sometimes("a client resumes");
                    }
                    seen => {
                        if seen.is_some() {
                            sometimes("a client cannot resume");
                        }
                        *self = Client { begin: begin.offset, ..Client::new(self.at) };
                    }
                }
                self.seen = Some(begin);
            }
            MESSAGE => {
                let at = position(1)?;
                if self.seen.is_none_or(|seen| seen.offset + 1 != at.offset) {
                    return Err(format!("{line:?} after {:?}", self.seen));
                }
                self.messages.insert(at.offset, (at.epoch, words[3].to_owned()));
                self.seen = Some(at);
                return Ok(Some((at, words[3].to_owned())));
            }
            NOTICE => {
                let (seen, next) = (position(1)?, position(3)?);
                if self.seen.map(|seen| seen.offset) != Some(seen.offset) {
                    return Err(format!("{line:?} after {:?}", self.seen));
                }
                if words[5] == "true" {
                    sometimes("a client is notified of a loss");
                    // What is behind the position was lost, or all of it.
                    self.messages.retain(|offset, (epoch, _)| *offset <= next.offset && *epoch == next.epoch);
                    self.gaps.retain_mut(|(_, last)| {
                        *last = (*last).min(next.offset);
                        true
                    });
                    self.begin = self.messages.keys().next().map_or(next.offset, |first| first - 1);
                } else {
                    sometimes("a client is notified of a gap");
                    self.gaps.push((seen.offset + 1, next.offset));
                }
                self.seen = Some(next);
            }
            _ => return Err(format!("{line:?} is not understood")),
        }
        Ok(None)
    }

    /// Compares with the messages of the store.
    ///
    /// # Errors
    /// If the client lacks a message and was not told so, or has another one.
    pub(super) fn compare(&self, history: &History) -> Result<(), String> {
        let Some(seen) = self.seen else { return Err("nothing was received".to_owned()) };
        if seen.offset != history.top {
            return Err(format!("{seen} was seen, and the top is {}", history.top));
        }
        for message in &history.messages {
            let (offset, text) = (message.position.offset, String::from_utf8_lossy(&message.payload));
            let is_missing = self.gaps.iter().any(|(first, last)| (*first..=*last).contains(&offset));
            let found = self.messages.get(&offset).map(|(_, text)| text.as_str());
            if offset > self.begin && !is_missing && found != Some(&text) {
                return Err(format!("{} is {text}, and the client has {found:?}", message.position));
            }
        }
        Ok(())
    }
}
