//! Checks the records of a run. Pure: the tests plant faults in small journals.
//!
//! A message is accepted when its sender has received its position. Every member of the room must
//! then receive it once and in order, or receive a notice that covers it: a `gap`, or a
//! `joined` with `recovered: false`. The bots stay members for the whole run, over all of their
//! connections.

mod epochs;
mod member;
mod presence;
#[cfg(test)]
mod resume_tests;
mod resumes;
#[cfg(test)]
mod tests;

use crate::journal::{Event, Journal};
use epochs::RoomEpochs;
use member::Member;
use netwheel::broker::Position;
use resumes::Resumes;
use std::time::Duration;

/// Faults that are described in words.
const MAX_EXAMPLES: usize = 20;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Messages that were accepted.
    pub(crate) accepted: u64,
    /// Messages that members have received.
    pub(crate) deliveries: u64,
    /// Accepted messages in the store that a member has not received, without a notice. Counted
    /// for each member.
    pub(crate) lost: u64,
    /// Accepted messages that the store has lost before a member has received them, without a
    /// notice. Counted for each member.
    pub(crate) without_notice: u64,
    /// Accepted messages that are covered by notices. Counted for each member.
    pub(crate) noticed: u64,
    /// Notices to all members.
    pub(crate) notices: u64,
    /// Members that received a message before the store lost it, and continued in a later epoch
    /// without a notice.
    pub(crate) untold: u64,
    /// Planned resumes. `None` if the fault has no planned resumes.
    pub(crate) resumes: Option<u64>,
    /// Planned resumes with a wrong answer, or without an answer.
    pub(crate) wrong_resumes: u64,
    pub(crate) doubled: u64,
    pub(crate) out_of_order: u64,
    /// Users that were not listed although they were members. `None` if no list was received.
    pub(crate) absent: Option<u64>,
    /// The longest time for which such a user was not listed. `None` if no list was received.
    pub(crate) absent_for: Option<Duration>,
    /// The longest time for which a user was listed after its connection had ended. `None` if no
    /// list was received.
    pub(crate) ghosts: Option<Duration>,
    /// The longest time for which no list of a room was received. `None` if no list was received.
    pub(crate) no_list_for: Option<Duration>,
    /// The longest times without a delivery of all members, in ascending order.
    pub(crate) gaps: Vec<Duration>,
    /// Descriptions of the first faults.
    pub(crate) examples: Vec<String>,
}

impl Verdict {
    /// Returns whether a guarantee was broken. Members get no notice of messages that the store
    /// has lost, if they have received none of them.
    pub(crate) fn has_faults(&self) -> bool {
        self.lost + self.doubled + self.out_of_order + self.untold + self.wrong_resumes > 0
    }

    /// Returns the quantile of the longest times without a delivery.
    pub(crate) fn gap(&self, quantile: f64) -> Duration {
        let rank = (self.gaps.len() as f64 * quantile).ceil() as usize;
        self.gaps.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    fn note(&mut self, example: impl FnOnce() -> String) {
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// A message that was accepted.
#[derive(Debug, Clone, Copy)]
struct AcceptedMessage {
    position: Position,
    sender: u32,
    number: u32,
}

/// Checks a run of `bots` bots, of which bot n is in the room n mod `rooms`.
pub(crate) fn check(journal: &Journal, bots: u32, rooms: u32) -> Verdict {
    let mut verdict = Verdict::default();
    let mut epochs = vec![RoomEpochs::default(); rooms as usize];
    let mut accepted = vec![Vec::new(); rooms as usize];
    for entry in &journal.entries {
        let room = (entry.bot % rooms) as usize;
        match entry.event {
            Event::Received { position, .. } => epochs[room].note(position),
            Event::Accepted { position, number } => {
                epochs[room].note(position);
                accepted[room].push(AcceptedMessage { position, sender: entry.bot, number });
                verdict.accepted += 1;
            }
            Event::Joined { position, .. } | Event::Gap { position } => {
                epochs[room].begin(position.epoch);
            }
            Event::Resumed { .. } | Event::Left { .. } => {}
        }
    }
    let mut members: Vec<Member> = (0..bots).map(Member::new).collect();
    for entry in &journal.entries {
        let epochs = &epochs[(entry.bot % rooms) as usize];
        if let Some(member) = members.get_mut(entry.bot as usize) {
            member.note(entry, epochs, &mut verdict);
        }
    }
    for member in &members {
        let room = (member.number() % rooms) as usize;
        for message in &accepted[room] {
            member.look_for(message, &epochs[room], journal.stored.as_ref(), &mut verdict);
        }
        verdict.gaps.push(member.longest_gap());
    }
    verdict.gaps.sort_unstable();
    presence::check(journal, bots, rooms, &mut verdict);
    Resumes::check(journal, &mut verdict);
    verdict
}
