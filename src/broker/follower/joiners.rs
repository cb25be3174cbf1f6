//! Channels that wait to become members: one read serves as many of them as possible.
//!
//! Invariant: a joiner is greeted before anything is written to it, and admitted when it has all
//! messages up to the position of the members.

use super::{
    Follower,
    step::{FollowerStep, JoinFrom, Joined, JoinerId, Missed, MissedCause, ReadAnswer},
};
use crate::broker::store::{Epochs, Position, ReadFrom};
use std::collections::BTreeMap;

/// The joiners that wait. A joiner is served in its turn, and takes a new one when it was served.
#[derive(Debug, Default)]
pub(super) struct Joiners {
    by_turn: BTreeMap<u64, Joiner>,
    turns: BTreeMap<JoinerId, u64>,
    next_turn: u64,
}

#[derive(Debug)]
struct Joiner {
    id: JoinerId,
    start: JoinFrom,
    /// The position behind the last message that was written to it. `None` before the greeting.
    at: Option<Position>,
    /// The number of the first read that began after it came.
    since: u64,
}

impl Joiners {
    pub(super) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_turn.len()
    }

    /// Returns something that changes when a joiner is brought forward: it gets another turn, or
    /// leaves.
    pub(super) fn turns(&self) -> (u64, usize) {
        (self.next_turn, self.len())
    }

    pub(super) fn remove(&mut self, id: JoinerId) -> bool {
        self.turns.remove(&id).is_some_and(|turn| self.by_turn.remove(&turn).is_some())
    }

    pub(super) fn take_all(&mut self) -> Vec<JoinerId> {
        self.turns.clear();
        std::mem::take(&mut self.by_turn).into_values().map(|joiner| joiner.id).collect()
    }

    /// Takes the joiner with the first turn from one on.
    fn take_from(&mut self, turn: u64) -> Option<(u64, Joiner)> {
        let turn = *self.by_turn.range(turn..).next()?.0;
        let joiner = self.by_turn.remove(&turn)?;
        self.turns.remove(&joiner.id);
        Some((turn, joiner))
    }

    /// Adds a joiner with its turn.
    fn put_back(&mut self, turn: u64, joiner: Joiner) {
        self.turns.insert(joiner.id, turn);
        self.by_turn.insert(turn, joiner);
    }

    /// Adds a joiner behind all others.
    fn put_last(&mut self, joiner: Joiner) {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.put_back(turn, joiner);
    }

    /// Moves joiners back whose positions are not valid any more. Returns a notice for each of
    /// them.
    pub(super) fn rewind(&mut self, epochs: &Epochs, top: u64) -> Vec<(JoinerId, Missed)> {
        let mut rewound = Vec::new();
        for joiner in self.by_turn.values_mut() {
            if let Some(seen) = joiner.at
                && epochs.newest().id != seen.epoch
                && !epochs.is_valid(seen, top)
            {
                let next = epochs.resume_point(seen, top);
                rewound.push((joiner.id, Missed { cause: MissedCause::Rewound, seen, next }));
                joiner.at = Some(next);
            }
        }
        rewound
    }

    /// Returns the position of a joiner that is ahead of this one. The store had it.
    pub(super) fn ahead_of(&self, position: Position) -> Option<Position> {
        let ahead = self.by_turn.values().filter_map(|joiner| joiner.at);
        ahead.filter(|at| at.offset > position.offset).max_by_key(|at| at.offset)
    }

    /// Returns where to read for the first joiner, and for those whose messages begin shortly
    /// before.
    pub(super) fn read_from(&self, position: Option<Position>, read_messages: u64) -> Option<ReadFrom> {
        let Some(position) = position else {
            let first = self.first()?;
            let offsets = self.by_turn.values().filter_map(|joiner| match joiner.start {
                JoinFrom::After { position, .. } => Some(position.offset),
                _ => None,
            });
            let last = self.by_turn.values().map(|joiner| match joiner.start {
                JoinFrom::Now => 0,
                JoinFrom::Last(messages) | JoinFrom::After { or_last: messages, .. } => messages,
            });
            return match first.start {
                JoinFrom::After { position, .. } => {
                    Some(ReadFrom::After(lowest(position.offset, offsets, read_messages)))
                }
                _ => Some(ReadFrom::Last(last.max().unwrap_or(0).min(read_messages))),
            };
        };
        let offset = |joiner: &Joiner| match (joiner.at, joiner.start) {
            (Some(at), _) => at.offset,
            (None, JoinFrom::After { position: after, .. }) => after.offset.min(position.offset),
            (None, JoinFrom::Last(messages)) => position.offset.saturating_sub(messages),
            (None, JoinFrom::Now) => position.offset,
        };
        let first = offset(self.first()?);
        Some(ReadFrom::After(lowest(first, self.by_turn.values().map(offset), read_messages)))
    }

    /// Returns the first joiner and its position, if it came before this read began.
    pub(super) fn first_of_read(&self, read: u64) -> Option<(JoinerId, Option<Position>)> {
        self.first().filter(|first| first.since <= read).map(|first| (first.id, first.at))
    }

    fn first(&self) -> Option<&Joiner> {
        self.by_turn.values().next()
    }
}

/// Returns the lowest offset from which one read also reaches behind `first`.
fn lowest(first: u64, offsets: impl Iterator<Item = u64>, read_messages: u64) -> u64 {
    let near = first.saturating_sub(read_messages / 2);
    offsets.filter(|offset| *offset >= near).min().unwrap_or(first).min(first)
}

impl<P: Clone> Follower<P> {
    /// Adds a joiner. Serves it at once, if those before it have been served as far as possible.
    pub(super) fn add_joiner(&mut self, id: JoinerId, start: JoinFrom) {
        let mut joiner = Joiner { id, start, at: None, since: self.next_read };
        let is_turn = !self.is_unserved && self.has_room();
        if is_turn && self.serve(&mut joiner) {
            return;
        }
        self.is_unserved |= !is_turn;
        self.joiners.put_last(joiner);
    }

    /// Writes available messages to joiners, and admits joiners that are complete. Does nothing
    /// unless there is something new for them.
    pub(super) fn serve_joiners(&mut self) {
        if self.synced.is_none() || !self.is_unserved {
            return;
        }
        let (mut next, mut advanced) = (0, Vec::new());
        while self.has_room()
            && let Some((turn, mut joiner)) = self.joiners.take_from(next)
        {
            next = turn + 1;
            let before = joiner.at;
            if self.serve(&mut joiner) {
                continue;
            }
            if joiner.at == before {
                self.joiners.put_back(turn, joiner);
            } else {
                advanced.push(joiner);
            }
        }
        self.is_unserved = self.joiners.by_turn.range(next..).next().is_some();
        // Joiners that were not served yet keep their turn.
        advanced.into_iter().for_each(|joiner| self.joiners.put_last(joiner));
        if self.joiners.is_empty() {
            self.forget_answer();
        }
    }

    /// Returns whether the joiner was admitted.
    fn serve(&mut self, joiner: &mut Joiner) -> bool {
        #[cfg(test)]
        {
            self.served += 1;
        }
        let Some(position) = self.position() else { return false };
        let mut at = match joiner.at {
            Some(at) => at,
            None => {
                let Some(joined) = self.resolve(joiner) else { return false };
                self.steps.push_back(FollowerStep::Greet(joiner.id, joined));
                joined.position
            }
        };
        while at.offset < position.offset {
            let before = at;
            self.write(joiner.id, &mut at, position.offset);
            if at != before {
                continue;
            }
            let oldest = self.answer.as_ref().map_or(0, |received| received.first_behind(at.offset));
            let Some(next) =
                self.synced.as_ref().filter(|_| oldest > at.offset.saturating_add(1)).map(|synced| {
                    let offset = (oldest - 1).min(position.offset);
                    Position::new(synced.epochs.of(offset), offset)
                })
            else {
                break;
            };
            let missed = Missed { cause: MissedCause::Trimmed, seen: at, next };
            self.steps.push_back(FollowerStep::WriteMissed(joiner.id, missed));
            at = next;
        }
        joiner.at = Some(at);
        // The client was ahead of this node, so this node has missed messages.
        self.is_behind |= at.offset > position.offset;
        let is_complete = at.offset == position.offset;
        if is_complete {
            self.steps.push_back(FollowerStep::Admit(joiner.id));
        }
        is_complete
    }

    /// Writes the messages behind `at`, up to `end`, as far as they are there.
    fn write(&mut self, joiner: JoinerId, at: &mut Position, end: u64) {
        let in_answer = self.answer.as_ref().map_or(&[][..], |received| &received.answer.items);
        let behind = |offset: u64| {
            let items: Box<dyn Iterator<Item = _>> = if self.ring.covers(offset) {
                Box::new(self.ring.after(offset))
            } else {
                let first =
                    in_answer.iter().position(|item| item.position.offset == offset.saturating_add(1));
                Box::new(in_answer.iter().skip(first.unwrap_or(usize::MAX)))
            };
            items
        };
        for item in behind(at.offset) {
            let is_next = item.position.offset == at.offset.saturating_add(1);
            if !is_next || item.position.offset > end {
                break;
            }
            *at = item.position;
            self.steps.push_back(FollowerStep::Write(joiner, item.clone()));
        }
    }

    /// Decides where the messages of a joiner begin. `None` if that needs a read.
    fn resolve(&self, joiner: &Joiner) -> Option<Joined> {
        let synced = self.synced.as_ref()?;
        let here = |position| Some(Joined { position, recovered: true });
        match joiner.start {
            JoinFrom::Now => here(synced.position),
            JoinFrom::Last(messages) => self.last(messages, joiner).and_then(here),
            JoinFrom::After { position, or_last } => {
                let is_near = position.offset == synced.position.offset || self.ring.covers(position.offset);
                if is_near && synced.epochs.is_valid(position, synced.position.offset) {
                    return here(position);
                }
                let answer = self.fresh_answer(joiner)?;
                if answer.epochs.is_valid(position, answer.top)
                    && answer.oldest <= position.offset.saturating_add(1)
                {
                    return here(position);
                }
                let position = self.last(or_last, joiner)?;
                Some(Joined { position, recovered: false })
            }
        }
    }

    /// Returns the position before the last messages.
    fn last(&self, messages: u64, joiner: &Joiner) -> Option<Position> {
        let synced = self.synced.as_ref()?;
        let end = synced.position.offset;
        let first = synced.epochs.as_slice()[0].first;
        let mut from = end.saturating_sub(messages).max(first - 1).min(end);
        if from < end && !self.ring.covers(from) {
            let answer = self.fresh_answer(joiner)?;
            from = from.max(answer.oldest.saturating_sub(1)).min(end);
        }
        let is_end = from == end;
        Some(if is_end { synced.position } else { Position::new(synced.epochs.of(from), from) })
    }

    /// Returns the last answer if its read began after the joiner came.
    fn fresh_answer(&self, joiner: &Joiner) -> Option<&ReadAnswer<P>> {
        let fresh = self.answer.as_ref().filter(|received| received.read >= joiner.since);
        fresh.map(|received| &received.answer)
    }
}
