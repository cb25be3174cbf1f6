//! `Follower`: the messages of one topic, in order, for the members of one node.
//!
//! Its inputs are events and answers of the broker, which may be lost, late, doubled or in another
//! order. Its outputs are steps, which the topic carries out in order. Pure, without I/O.
//!
//! It runs under the topic's lock. Cloning a payload calls no code of the program. No payload is
//! dropped: payloads that are removed are outputs, too.
//!
//! Invariants, between two [`FollowerStep::Missed`]: members receive messages in the order of their
//! offsets, without a gap and each once. A joiner receives exactly the messages between its
//! greeting and its admission. At most one read is under way, however many joiners wait. Members
//! receive only messages that the store had when it was asked last, or that were stored since.

mod item;
mod joiners;
mod step;
#[cfg(test)]
mod tests;

pub(in crate::broker) use item::{Ahead, Item};
pub(in crate::broker) use step::{FollowerStep, JoinFrom, JoinerId, ReadAnswer};
pub use step::{Joined, Missed, MissedCause};

use crate::broker::store::{Epochs, Position, ReadFrom, ReadRange, TopicTop};
use crate::error::Error;
use item::Ring;
use joiners::Joiners;
use std::collections::VecDeque;
use step::LastAnswer;

/// How many steps may wait before no further ones are made.
const MAX_STEPS: usize = 1024;

/// The limits of one topic.
#[derive(Debug, Clone, Copy)]
pub(in crate::broker) struct FollowerLimits {
    pub(in crate::broker) ring_messages: usize,
    pub(in crate::broker) ring_bytes: usize,
    pub(in crate::broker) ahead_messages: usize,
    pub(in crate::broker) ahead_bytes: usize,
    pub(in crate::broker) read_messages: u64,
    pub(in crate::broker) read_bytes: u64,
}

#[derive(Debug)]
pub(in crate::broker) struct Follower<P> {
    limits: FollowerLimits,
    /// `None` before the first read.
    synced: Option<Synced>,
    ring: Ring<P>,
    ahead: Ahead<P>,
    joiners: Joiners,
    /// Whether messages are needed from now on, also without joiners.
    is_watched: bool,
    /// Whether there is something new for the joiners that wait.
    is_unserved: bool,
    /// How often a joiner was served.
    #[cfg(test)]
    served: usize,
    /// The read that is under way.
    reading: Option<u64>,
    /// Where the last read begins.
    read_from: ReadFrom,
    next_read: u64,
    /// The last answer, as long as joiners may need it.
    answer: Option<LastAnswer<P>>,
    /// Whether messages or epochs are missing that have not been asked for.
    is_behind: bool,
    /// The newest epoch and the top that the store had during the first read, whose answer may be
    /// older.
    wanted: Option<Position>,
    /// Whether the last read failed, so that nothing is read before another input.
    has_failed: bool,
    steps: VecDeque<FollowerStep<P>>,
    /// Messages that are not needed any more.
    removed: Vec<Item<P>>,
}

/// How far members have been served, if all steps are carried out.
#[derive(Debug)]
struct Synced {
    epochs: Epochs,
    position: Position,
}

impl<P: Clone> Follower<P> {
    pub(in crate::broker) fn new(limits: FollowerLimits) -> Self {
        Follower {
            synced: None,
            ring: Ring::new(limits.ring_messages, limits.ring_bytes),
            ahead: Ahead::new(limits.ahead_messages, limits.ahead_bytes),
            joiners: Joiners::default(),
            is_watched: false,
            is_unserved: false,
            #[cfg(test)]
            served: 0,
            reading: None,
            read_from: ReadFrom::Last(0),
            next_read: 0,
            answer: None,
            is_behind: false,
            wanted: None,
            has_failed: false,
            steps: VecDeque::new(),
            removed: Vec::new(),
            limits,
        }
    }

    /// Returns the position behind the last message for the members.
    pub(in crate::broker) fn position(&self) -> Option<Position> {
        self.synced.as_ref().map(|synced| synced.position)
    }

    /// Returns the number of joiners that wait.
    #[cfg(test)]
    fn joiners(&self) -> usize {
        self.joiners.len()
    }

    /// Returns the bytes of the messages in memory.
    #[cfg(test)]
    fn ring_bytes(&self) -> usize {
        self.ring.bytes()
    }

    // ---- inputs ---------------------------------------------------------------------------------

    /// A message was stored.
    pub(in crate::broker) fn message(&mut self, item: Item<P>) {
        let (is_needed, is_lost) = match &self.synced {
            None => (self.reading.is_some(), false),
            Some(Synced { epochs, position }) => {
                let is_behind = item.position.offset > position.offset;
                let is_known = epochs.has(item.position.epoch);
                // An unknown epoch at or before the position: the store has lost the position, and
                // its offsets may need a long time until they reach it again.
                (!is_known || (epochs.has_message(item.position) && is_behind), !is_known && !is_behind)
            }
        };
        if is_needed {
            self.is_behind |= !self.ahead.insert(item, self.next_read) || is_lost;
            self.settle();
        } else {
            self.removed.push(item);
        }
    }

    /// An epoch began without a message.
    pub(in crate::broker) fn epoch_began(&mut self, position: Position) {
        self.is_behind |= self.synced.as_ref().is_none_or(|synced| !synced.epochs.has(position.epoch));
        self.settle();
    }

    /// The topic was verified. `seen` is the position that was passed, if there was one.
    pub(in crate::broker) fn verified(&mut self, seen: Option<Position>, answer: TopicTop) {
        let TopicTop { epochs: found, top } = answer;
        let Some(Synced { epochs, position }) = &mut self.synced else {
            // The first read may have been answered before messages were stored whose events are
            // lost.
            self.wanted = self.reading.map(|_| found.at(top));
            return;
        };
        self.has_failed = false;
        // The position may be ahead of the answer.
        let is_valid = found.newest().id == position.epoch || found.is_valid(*position, top);
        let was_valid = seen.is_none_or(|seen| seen.epoch == position.epoch && found.is_valid(seen, top));
        if !was_valid || !is_valid || top > position.offset {
            self.is_behind = true;
        } else if position.offset == top && found.newest().id != position.epoch {
            if self.reading.is_some() || seen.is_none() {
                // Its answer may be older than this one. Only a later read is certainly newer.
                self.is_behind = true;
            } else {
                *position = found.at(top);
                *epochs = found;
                self.is_unserved = true;
                self.steps.push_back(FollowerStep::EpochChanged(*position));
            }
        }
        self.settle();
    }

    /// Returns whether this read is under way. The answers of others are late.
    pub(in crate::broker) fn is_reading(&self, read: u64) -> bool {
        self.reading == Some(read)
    }

    /// A read was answered.
    pub(in crate::broker) fn answered(&mut self, read: u64, answer: Result<ReadAnswer<P>, Error>) {
        if !self.is_reading(read) {
            self.removed.extend(answer.into_iter().flat_map(|answer| answer.items));
            return;
        }
        self.reading = None;
        self.is_unserved = true;
        match answer {
            Ok(answer) => {
                let before = (self.position(), self.joiners.first_of_read(read));
                let received = LastAnswer::new(read, self.read_from, answer);
                self.apply(&received);
                self.ahead.forget_before(read);
                self.forget_answer();
                self.answer = Some(received);
                self.serve_after_read(read, before);
            }
            Err(error) => {
                self.has_failed = true;
                self.wanted = None;
                self.is_behind |= self.synced.is_some();
                for joiner in self.joiners.take_all() {
                    self.steps.push_back(FollowerStep::Fail(joiner, error.clone()));
                }
            }
        }
        self.settle();
    }

    /// A channel wants to become a member.
    pub(in crate::broker) fn join(&mut self, joiner: JoinerId, start: JoinFrom) {
        self.has_failed = false;
        self.add_joiner(joiner, start);
        self.settle();
    }

    /// Messages are needed from now on, also without joiners.
    pub(in crate::broker) fn watch(&mut self) {
        self.has_failed = false;
        self.is_watched = true;
        self.settle();
    }

    /// A joiner has left. Returns whether it was waiting.
    pub(in crate::broker) fn leave(&mut self, joiner: JoinerId) -> bool {
        let was_waiting = self.joiners.remove(joiner);
        if self.joiners.is_empty() {
            self.forget_answer();
        }
        was_waiting
    }

    /// Time has passed: reads again after an error.
    pub(in crate::broker) fn retry(&mut self) {
        self.has_failed = false;
        self.settle();
    }

    /// An interval has passed. Removes and returns the recent messages if the last one is old.
    /// Joiners that need them are served by a read, which brings them back.
    pub(in crate::broker) fn forget_old_messages(&mut self) -> VecDeque<Item<P>> {
        self.ring.take_old()
    }

    /// Returns whether something is needed that is not read before [`retry`](Follower::retry),
    /// because the last read has failed.
    pub(in crate::broker) fn needs_retry(&self) -> bool {
        let has_begun = self.synced.is_some() || !self.is_watched;
        let is_complete = has_begun && !self.is_behind && self.ahead.is_empty() && self.joiners.is_empty();
        self.has_failed && !is_complete
    }

    /// Nobody needs the topic: forgets everything, and returns it. Answers that are under way are
    /// late.
    pub(in crate::broker) fn reset(&mut self) -> Self {
        let fresh = Follower { next_read: self.next_read, ..Follower::new(self.limits) };
        std::mem::replace(self, fresh)
    }

    // ---- outputs --------------------------------------------------------------------------------

    /// Returns the next step.
    pub(in crate::broker) fn next_step(&mut self) -> Option<FollowerStep<P>> {
        if self.steps.is_empty() {
            self.settle();
        }
        self.steps.pop_front()
    }

    /// Takes back a step that cannot be carried out now. It is the next one again.
    pub(in crate::broker) fn put_back(&mut self, step: FollowerStep<P>) {
        self.steps.push_front(step);
    }

    /// Returns the messages that are not needed any more, to be dropped without a lock.
    pub(in crate::broker) fn take_removed(&mut self) -> Vec<Item<P>> {
        let mut removed = std::mem::take(&mut self.removed);
        removed.append(&mut self.ring.removed);
        removed.append(&mut self.ahead.removed);
        removed
    }

    // ---- state ----------------------------------------------------------------------------------

    fn has_room(&self) -> bool {
        self.steps.len() < MAX_STEPS
    }

    /// Makes all steps that are possible.
    fn settle(&mut self) {
        if self.has_room() {
            self.deliver_ahead();
            self.serve_joiners();
            self.read_if_needed();
        }
    }

    /// Serves joiners with a new answer. An answer that brings neither the members nor a joiner
    /// forward is not asked for again at once.
    fn serve_after_read(
        &mut self,
        read: u64,
        before: (Option<Position>, Option<(JoinerId, Option<Position>)>),
    ) {
        if before.1.is_some() && self.has_room() {
            let turns = self.joiners.turns();
            self.deliver_ahead();
            self.serve_joiners();
            self.has_failed |= before == (self.position(), self.joiners.first_of_read(read))
                && turns == self.joiners.turns();
        }
    }

    fn deliver_ahead(&mut self) {
        while let Some(Synced { epochs, position }) = &self.synced
            && let Some(item) = self.ahead.take_next(epochs, position.offset)
        {
            self.deliver(item);
        }
    }

    fn deliver(&mut self, item: Item<P>) {
        if let Some(synced) = &mut self.synced {
            synced.position = item.position;
        }
        self.is_unserved = true;
        self.ring.push(item.clone());
        self.steps.push_back(FollowerStep::Broadcast(item));
    }

    fn apply(&mut self, received: &LastAnswer<P>) {
        let ReadAnswer { epochs, top, oldest, items } = &received.answer;
        let Some(synced) = &mut self.synced else {
            self.synced = Some(Synced { epochs: epochs.clone(), position: epochs.at(*top) });
            self.is_behind |= self
                .wanted
                .take()
                .is_some_and(|wanted| wanted.epoch != epochs.newest().id || wanted.offset > *top);
            self.ring.clear();
            if items.last().is_some_and(|last| last.position.offset == *top) {
                items.iter().for_each(|item| self.ring.push(item.clone()));
            }
            return;
        };
        for (joiner, missed) in self.joiners.rewind(epochs, *top) {
            self.steps.push_back(FollowerStep::WriteMissed(joiner, missed));
        }
        let before = synced.position;
        let was_newest = synced.epochs.newest().id;
        synced.epochs = epochs.clone();
        // A position of the newest epoch may be ahead of the answer.
        if epochs.newest().id != before.epoch && !epochs.is_valid(before, *top) {
            let next = epochs.resume_point(before, *top);
            self.miss(Missed { cause: MissedCause::Rewound, seen: before, next });
        } else if epochs.newest().id != was_newest && epochs.newest().id != before.epoch {
            self.steps.push_back(FollowerStep::EpochChanged(Position::new(
                epochs.newest().id,
                epochs.newest().first - 1,
            )));
            if before.offset == *top {
                // The verification would find the same epoch again.
                synced.position = epochs.at(*top);
            }
        }
        self.deliver_ahead();
        if let Some(seen) = self.position()
            && *top > seen.offset
            && *oldest > seen.offset.saturating_add(1)
        {
            self.trimmed_before(*oldest, epochs);
        }
        for item in items {
            if self.is_gap_before(item, received.after) {
                self.deliver_ahead();
            }
            if self.is_gap_before(item, received.after) {
                // Another program has deleted messages.
                self.trimmed_before(item.position.offset, epochs);
            }
            let is_next = self
                .position()
                .is_some_and(|position| item.position.offset == position.offset.saturating_add(1));
            if is_next && epochs.has_message(item.position) {
                self.deliver(item.clone());
            }
        }
        let end = self.position();
        if self.ring.is_empty() && items.last().map(|last| last.position) == end {
            // A joiner needed them, so others may.
            items.iter().for_each(|item| self.ring.push(item.clone()));
        }
        let is_behind = end.is_some_and(|position| *top > position.offset);
        self.is_behind |= is_behind;
        // A broker that does not return a message which it has is not asked at once again. After a
        // rewind, it was asked for messages behind another position.
        self.has_failed |= is_behind && items.is_empty() && self.position() == Some(before);
    }

    /// Returns whether messages between the position of the members and `item` are missing in the
    /// store. `item` was read with all messages behind the offset `after`.
    fn is_gap_before(&self, item: &Item<P>, after: u64) -> bool {
        let is_behind =
            |at: Position| at.offset >= after && item.position.offset > at.offset.saturating_add(1);
        self.position().is_some_and(is_behind)
    }

    /// Moves all members to the position before a message.
    fn trimmed_before(&mut self, offset: u64, epochs: &Epochs) {
        let Some(seen) = self.position() else { return };
        let next = Position::new(epochs.of(offset - 1), offset - 1);
        self.miss(Missed { cause: MissedCause::Trimmed, seen, next });
    }

    /// Moves all members to another position, and adds a notice for them.
    fn miss(&mut self, missed: Missed) {
        if let Some(synced) = &mut self.synced {
            synced.position = missed.next;
        }
        self.ring.truncate(missed.next.offset);
        self.forget_answer();
        self.steps.push_back(FollowerStep::Missed(missed));
    }

    fn forget_answer(&mut self) {
        let answer = self.answer.take();
        self.removed.extend(answer.into_iter().flat_map(|received| received.answer.items));
    }

    fn read_if_needed(&mut self) {
        if self.reading.is_some() || self.has_failed || !self.has_room() {
            return;
        }
        let position = self.position();
        let from = match position {
            Some(position) if self.is_behind || !self.ahead.is_empty() => {
                Some(ReadFrom::After(position.offset))
            }
            None if self.is_watched && self.joiners.is_empty() => Some(ReadFrom::Last(0)),
            _ => self.joiners.read_from(position, self.limits.read_messages),
        };
        let Some(from) = from else { return };
        if position.is_some_and(|position| from == ReadFrom::After(position.offset)) {
            self.is_behind = false;
        }
        let read = self.next_read;
        self.next_read += 1;
        (self.reading, self.read_from) = (Some(read), from);
        let mut range = ReadRange::new(from);
        range.seen = position.map(|position| self.joiners.ahead_of(position).unwrap_or(position));
        range.max_messages = self.limits.read_messages;
        range.max_bytes = self.limits.read_bytes;
        self.steps.push_back(FollowerStep::Read(read, range));
    }
}
