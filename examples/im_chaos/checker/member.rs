//! `Member`: the messages of one bot.

use super::{AcceptedMessage, Verdict, epochs::RoomEpochs};
use crate::journal::{Entry, Event, Recovered};
use netwheel::broker::Position;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

#[derive(Debug)]
pub(super) struct Member {
    number: u32,
    /// The position of the first join, behind which all messages are due.
    first: Option<Position>,
    /// The position behind which the next message lies.
    at: Option<Position>,
    received: HashSet<Position>,
    /// The highest number of each sender, with the position of that message.
    numbers: BTreeMap<u32, (u32, Position)>,
    /// The last position of each message, by its sender and number.
    copies: HashMap<(u32, u32), Position>,
    /// The positions before and after each notice.
    notices: Vec<(Position, Position)>,
    /// Whether the answer to a resume with a position of another user is expected.
    is_stranger: bool,
    last_delivery: Option<Duration>,
    longest_gap: Duration,
}

impl Member {
    pub(super) fn new(number: u32) -> Self {
        Member {
            number,
            first: None,
            at: None,
            received: HashSet::new(),
            numbers: BTreeMap::new(),
            copies: HashMap::new(),
            notices: Vec::new(),
            is_stranger: false,
            last_delivery: None,
            longest_gap: Duration::ZERO,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn longest_gap(&self) -> Duration {
        self.longest_gap
    }

    /// Records an entry of this member.
    pub(super) fn note(&mut self, entry: &Entry, epochs: &RoomEpochs, verdict: &mut Verdict) {
        match entry.event {
            Event::Joined { position, recovered } => {
                if std::mem::take(&mut self.is_stranger) {
                    self.forget_behind(position, epochs);
                }
                match (recovered, self.at) {
                    (_, None) => (self.first, self.at) = (Some(position), Some(position)),
                    (Recovered::Yes, Some(_)) => {
                        self.look_for_notice(position, epochs, verdict);
                        self.at = Some(position);
                    }
                    (Recovered::New | Recovered::No, Some(seen)) => self.note_notice(seen, position, verdict),
                }
            }
            Event::Resumed { is_own, .. } => self.is_stranger = !is_own,
            Event::Gap { position } => {
                if let Some(seen) = self.at {
                    self.note_notice(seen, position, verdict);
                }
            }
            Event::Received { position, sender, number } => {
                let gap = entry.at.saturating_sub(self.last_delivery.unwrap_or(entry.at));
                self.longest_gap = self.longest_gap.max(gap);
                self.last_delivery = Some(entry.at);
                self.receive(position, sender, number, epochs, verdict);
            }
            Event::Left { stays_away: true } => self.last_delivery = None,
            Event::Accepted { .. } | Event::Left { .. } => {}
        }
    }

    fn note_notice(&mut self, seen: Position, next: Position, verdict: &mut Verdict) {
        verdict.notices += 1;
        self.notices.push((seen, next));
        self.at = Some(next);
    }

    /// Forgets messages behind a position. The node had no position of this member, so it sends
    /// them again.
    fn forget_behind(&mut self, position: Position, epochs: &RoomEpochs) {
        self.received.retain(|received| !epochs.is_behind(*received, position));
        self.numbers.retain(|_, (_, at)| !epochs.is_behind(*at, position));
        self.copies.retain(|_, at| !epochs.is_behind(*at, position));
    }

    /// Checks that a member that goes on in another epoch has not seen a lost message.
    fn look_for_notice(&self, position: Position, epochs: &RoomEpochs, verdict: &mut Verdict) {
        let me = self.number;
        if let Some(at) = self.at
            && at.epoch != position.epoch
            && epochs.is_behind(position, at)
            && epochs.has_lost(at)
        {
            verdict.untold += 1;
            verdict.note(|| format!("bot {me} was at {at}, which is lost, and goes on at {position}"));
        }
    }

    fn receive(
        &mut self,
        position: Position,
        sender: u32,
        number: u32,
        epochs: &RoomEpochs,
        verdict: &mut Verdict,
    ) {
        let me = self.number;
        let what = move || format!("message {number} of bot {sender} at {position}");
        verdict.deliveries += 1;
        if !self.received.insert(position) {
            verdict.doubled += 1;
            verdict.note(|| format!("bot {me} has received {} twice", what()));
            return;
        }
        self.look_for_notice(position, epochs, verdict);
        if let Some(at) = self.at.filter(|at| !epochs.is_behind(position, *at)) {
            verdict.out_of_order += 1;
            verdict.note(|| format!("bot {me} has received {} behind {at}", what()));
        } else {
            self.at = Some(position);
        }
        if let Some(first) = self.copies.insert((sender, number), position) {
            // The store lost the first copy before its sender had an answer, so it was sent again.
            if !epochs.has_lost(first) {
                verdict.doubled += 1;
                verdict.note(|| format!("bot {me} has received {} again, after {first}", what()));
            }
            return;
        }
        match self.numbers.get(&sender) {
            Some((last, before)) if *last > number => {
                verdict.out_of_order += 1;
                verdict.note(|| format!("bot {me} has received {} behind {last} at {before}", what()));
            }
            _ => drop(self.numbers.insert(sender, (number, position))),
        }
    }

    /// Checks that an accepted message was received, or is covered by a notice.
    /// `stored` has the positions in the store, for nodes without epochs.
    pub(super) fn look_for(
        &self,
        message: &AcceptedMessage,
        epochs: &RoomEpochs,
        stored: Option<&HashSet<Position>>,
        verdict: &mut Verdict,
    ) {
        let AcceptedMessage { position, sender, number } = *message;
        let is_due = self.first.is_some_and(|first| epochs.is_behind(position, first));
        if !is_due || self.received.contains(&position) {
            return;
        }
        if self.notices.iter().any(|(seen, next)| epochs.is_covered(position, *seen, *next)) {
            verdict.noticed += 1;
            return;
        }
        let by_store = stored.map_or(epochs.has_lost(position), |stored| !stored.contains(&position));
        *if by_store { &mut verdict.without_notice } else { &mut verdict.lost } += 1;
        verdict.note(|| {
            let by = if by_store { ", which the store has lost" } else { "" };
            let me = self.number;
            format!("bot {me} has not received message {number} of bot {sender} at {position}{by}")
        });
    }
}
