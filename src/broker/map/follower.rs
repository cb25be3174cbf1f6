//! `MapFollower`: the replica of one map, which follows the map in the store.
//!
//! Its inputs are events and answers of the broker, which may be lost, late, doubled or in another
//! order. Its outputs are steps, which the map carries out in order. Pure, without I/O.
//!
//! It runs under the map's lock. Keys and values are not dropped in it: they are outputs, too.
//!
//! Invariants: the replica is the map at one position, except while a snapshot is loaded. The
//! changes among the steps lead from an empty map to the replica. At most one read is under way.

use super::{
    loading::{LoadStep, Loading},
    replica::{Replica, ReplicaChange},
    unused::Unused,
};
use crate::broker::{
    follower::{Ahead, Item},
    store::{BrokerError, EntryChange, Epochs, MapEntry, Position, Snapshot, TopicTop},
};
use crate::error::Error;
use std::vec::IntoIter;

/// The limits of one map.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapLimits {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    pub(super) ahead_updates: usize,
    pub(super) ahead_bytes: usize,
}

/// Something to do, in order.
#[derive(Debug)]
pub(super) enum FollowStep {
    /// An entry of the replica has changed.
    Changed(ReplicaChange),
    /// The replica is complete up to this position.
    Advanced(Position),
    /// The replica is complete. If a new epoch has begun, with its position.
    Loaded(Option<Position>),
    /// The replica may be out of date.
    Interrupted(BrokerError),
    Resumed,
    /// Read a snapshot with the position that the node has seen, and pass the answer with the
    /// number.
    Read(u64, Option<Position>),
    /// Nothing, so that the lock is released for a moment.
    Continue,
}

/// The changes of one update.
type Changes = Vec<EntryChange>;

#[derive(Debug)]
pub(super) struct MapFollower {
    limits: MapLimits,
    replica: Replica,
    /// `None` before the first snapshot.
    synced: Option<Synced>,
    /// The position of the replica.
    applied: Option<Position>,
    /// The last read whose answer the replica has.
    applied_read: Option<u64>,
    applying: Option<Applying>,
    ahead: Ahead<Changes>,
    /// The read that is under way.
    reading: Option<u64>,
    next_read: u64,
    /// The answer that has not been begun.
    answer: Option<(u64, Snapshot)>,
    /// Whether a snapshot is needed that has not been asked for.
    is_behind: bool,
    /// A position that the store had.
    wanted: Option<Position>,
    /// The highest position of an update of this node, with the number of the read after its
    /// answer.
    acknowledged: Option<(Position, u64)>,
    /// Whether the last read failed, so that nothing is read before another input.
    has_failed: bool,
    /// The position of a map that does not fit, as long as no later one is known. It is not read
    /// again.
    too_large: Option<Position>,
    /// Whether the store may have changed since the last read began.
    has_news: bool,
    /// Why events may be missing.
    interruption: Option<BrokerError>,
    /// Why the last read failed.
    failure: Option<BrokerError>,
    /// Whether the last of the two steps was `Interrupted`.
    is_interrupted: bool,
    unused: Unused,
}

/// Where the replica is once everything that is begun is applied.
#[derive(Debug)]
struct Synced {
    epochs: Epochs,
    position: Position,
}

#[derive(Debug)]
enum Applying {
    Update(IntoIter<EntryChange>),
    /// With the number of the read, and whether a new epoch has begun.
    Snapshot(Loading, u64, bool),
}

impl MapFollower {
    pub(super) fn new(limits: MapLimits) -> Self {
        MapFollower {
            replica: Replica::default(),
            synced: None,
            applied: None,
            applied_read: None,
            applying: None,
            ahead: Ahead::new(limits.ahead_updates, limits.ahead_bytes),
            reading: None,
            next_read: 0,
            answer: None,
            is_behind: true,
            wanted: None,
            acknowledged: None,
            has_failed: false,
            too_large: None,
            has_news: false,
            interruption: None,
            failure: None,
            is_interrupted: false,
            unused: Unused::default(),
            limits,
        }
    }

    pub(super) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Returns the position of the replica. `None` before the first snapshot is loaded.
    pub(super) fn position(&self) -> Option<Position> {
        self.applied
    }

    /// Returns the highest position that the node has seen.
    pub(super) fn highest(&self) -> Option<Position> {
        let followed = self.synced.as_ref().map(|synced| synced.position);
        let acknowledged = self.acknowledged.map(|(position, _)| position);
        higher(followed.or(acknowledged), acknowledged)
    }

    /// Returns why the last read failed.
    pub(super) fn failure(&self) -> Option<&BrokerError> {
        self.failure.as_ref()
    }

    /// Returns the failure if the map is too large, and is not read again before it changes.
    pub(super) fn too_large(&self) -> Option<&BrokerError> {
        self.failure().filter(|_| self.too_large.is_some())
    }

    /// Returns why the map cannot be read, if another try would fail in the same way.
    pub(super) fn lasting_failure(&self) -> Option<&BrokerError> {
        self.failure.as_ref().filter(|cause| self.applied.is_none() && !cause.is_transient())
    }

    /// Returns the number of the next read.
    pub(super) fn next_read(&self) -> u64 {
        self.next_read
    }

    /// Returns whether the replica has the map of a position, or of a read, or of a later time.
    pub(super) fn covers(&self, position: Option<Position>, read: u64) -> bool {
        let (Some(applied), Some(synced)) = (self.applied, &self.synced) else { return false };
        if matches!(self.applying, Some(Applying::Snapshot(..))) {
            return false;
        }
        let is_before = |position: Position| match position.epoch == applied.epoch {
            true => position.offset <= applied.offset,
            false => synced.epochs.has(position.epoch),
        };
        self.applied_read.is_some_and(|applied| applied >= read) || position.is_some_and(is_before)
    }

    // ---- inputs ---------------------------------------------------------------------------------

    /// Entries have changed.
    pub(super) fn changed(&mut self, position: Position, changes: Changes) {
        self.note_position(position);
        let (is_needed, is_lost) = match &self.synced {
            None => (self.reading.is_some(), false),
            Some(synced) => {
                let is_ahead = position.offset > synced.position.offset;
                let is_known = synced.epochs.has(position.epoch);
                // An unknown epoch at or before the position: the store has lost the position.
                let is_needed = !is_known || (synced.epochs.has_message(position) && is_ahead);
                (is_needed, !is_known && !is_ahead)
            }
        };
        if is_needed {
            let size = changes.iter().map(EntryChange::size).sum();
            let item = Item { position, size, payload: changes };
            self.is_behind |= !self.ahead.insert(item, self.next_read) || is_lost;
        } else {
            self.unused.updates.push(changes);
        }
    }

    /// An epoch began without an update. Entries may be lost.
    pub(super) fn epoch_began(&mut self, position: Position) {
        self.note_position(position);
        self.is_behind |= self.synced.as_ref().is_none_or(|synced| !synced.epochs.has(position.epoch));
    }

    /// The map was verified. The question had the highest position that the node has seen.
    pub(super) fn verified(&mut self, found: &TopicTop) {
        let at = found.epochs.at(found.top);
        if self.too_large != Some(at) {
            self.note_news();
        }
        match &self.synced {
            // The first read may have been answered before updates whose events are lost.
            None => self.wanted = Some(at),
            Some(synced) if synced.position.epoch == at.epoch => self.wanted = higher(Some(at), self.wanted),
            Some(_) => self.is_behind = true,
        }
        self.has_failed = false;
    }

    /// The store has this position, or had it.
    fn note_position(&mut self, position: Position) {
        let is_older = |at: Position| position.epoch == at.epoch && position.offset <= at.offset;
        if !self.too_large.is_some_and(is_older) {
            self.note_news();
        }
    }

    /// A map that does not fit may have become smaller.
    fn note_news(&mut self) {
        (self.too_large, self.has_news) = (None, true);
    }

    /// Returns whether this read is under way. The answers of others are late.
    pub(super) fn is_reading(&self, read: u64) -> bool {
        self.reading == Some(read)
    }

    /// A read was answered. The entries are in the order of their keys, each key once. Returns a
    /// snapshot that is not needed.
    pub(super) fn answered(&mut self, read: u64, answer: Result<Snapshot, Error>) -> Option<Snapshot> {
        if !self.is_reading(read) {
            return answer.ok();
        }
        self.reading = None;
        match answer {
            Ok(snapshot) => {
                let bytes = snapshot.entries.iter().map(MapEntry::size).sum();
                if snapshot.entries.len() > self.limits.entries || bytes > self.limits.bytes {
                    let at = snapshot.epochs.at(snapshot.top);
                    self.exceeded(snapshot.entries.len(), bytes);
                    self.too_large = (!self.has_news).then_some(at);
                    return Some(snapshot);
                }
                self.failure = None;
                self.answer = Some((read, snapshot));
            }
            Err(error) => {
                let cause = BrokerError::of(&error).cloned();
                if let Some(BrokerError::TooLarge(at, _)) = cause {
                    self.too_large = (!self.has_news).then_some(at);
                }
                self.fail(cause.unwrap_or_else(|| BrokerError::failed(format_args!("{error:#}"))));
            }
        }
        None
    }

    /// A map of this size does not fit.
    fn exceeded(&mut self, entries: usize, bytes: usize) {
        let MapLimits { entries: max_entries, bytes: max_bytes, .. } = self.limits;
        let text = format!(
            "a replica of {entries} entries with {bytes} bytes; at most {max_entries} with {max_bytes} are allowed"
        );
        self.fail(BrokerError::Full(text.into()));
    }

    fn fail(&mut self, cause: BrokerError) {
        self.failure = Some(cause);
        (self.has_failed, self.is_behind) = (true, true);
    }

    /// An update of this node was answered with this position.
    pub(super) fn acknowledged(&mut self, position: Position) {
        self.note_position(position);
        let before = self.acknowledged.map(|(position, _)| position);
        let highest = higher(Some(position), before).unwrap_or(position);
        self.acknowledged = Some((highest, self.next_read));
        // The replica is older, or the store has lost the epoch since. A read that is under way
        // does not show the outcome of an update in the epoch before.
        let is_other = before.is_some_and(|before| before.epoch != position.epoch);
        let is_unknown = self.synced.as_ref().is_some_and(|synced| !synced.epochs.has(position.epoch));
        self.is_behind |= is_other || is_unknown;
    }

    /// The outcome of an update of this node is unknown, so that a new snapshot is needed.
    pub(super) fn refresh(&mut self) {
        self.is_behind = true;
    }

    /// Events may be missing until [`resumed`](MapFollower::resumed).
    pub(super) fn interrupted(&mut self, error: BrokerError) {
        self.interruption = Some(error);
    }

    pub(super) fn resumed(&mut self) {
        self.interruption = None;
        self.has_failed = false;
    }

    /// Time has passed: reads again after an error.
    pub(super) fn retry(&mut self) {
        self.has_failed = false;
    }

    /// Returns whether the last read has failed, and was not repeated.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed && self.needs_read()
    }

    /// Returns whether something is needed that is not read before [`retry`](MapFollower::retry).
    pub(super) fn needs_retry(&self) -> bool {
        self.has_failed() && self.too_large.is_none()
    }

    /// Nobody needs the map: forgets everything, and returns it.
    pub(super) fn reset(&mut self) -> Self {
        let fresh = MapFollower { next_read: self.next_read, ..MapFollower::new(self.limits) };
        std::mem::replace(self, fresh)
    }

    // ---- outputs --------------------------------------------------------------------------------

    /// Returns the next step.
    pub(super) fn next_step(&mut self) -> Option<FollowStep> {
        self.next_notice().or_else(|| self.next_change()).or_else(|| self.next_notice())
    }

    fn next_notice(&mut self) -> Option<FollowStep> {
        let trouble = self.interruption.as_ref().or(self.failure.as_ref());
        if trouble.is_some() == self.is_interrupted {
            return None;
        }
        self.is_interrupted = trouble.is_some();
        Some(trouble.map_or(FollowStep::Resumed, |error| FollowStep::Interrupted(error.clone())))
    }

    fn next_change(&mut self) -> Option<FollowStep> {
        loop {
            match &mut self.applying {
                Some(Applying::Update(changes)) => match changes.next() {
                    Some(change) => {
                        let position = self.synced.as_ref().map(|synced| synced.position)?;
                        if let Some(change) = self.replica.apply(change, position, &mut self.unused.keys) {
                            return Some(FollowStep::Changed(change));
                        }
                    }
                    None => return self.finish().map(FollowStep::Advanced),
                },
                Some(Applying::Snapshot(loading, read, is_new_epoch)) => {
                    match loading.next(&mut self.replica, &mut self.unused) {
                        LoadStep::Changed(change) => return Some(FollowStep::Changed(change)),
                        LoadStep::Skipped => return Some(FollowStep::Continue),
                        LoadStep::Done => {
                            self.applied_read = Some(*read);
                            let is_new_epoch = *is_new_epoch;
                            let position = self.finish();
                            return Some(FollowStep::Loaded(position.filter(|_| is_new_epoch)));
                        }
                    }
                }
                None => {
                    if let Some((read, snapshot)) = self.answer.take() {
                        if let Some(step) = self.begin_snapshot(read, snapshot) {
                            return Some(step);
                        }
                    } else if let Some(Synced { epochs, position }) = &self.synced
                        && let Some(item) = self.ahead.take_next(epochs, position.offset)
                    {
                        self.begin_update(item);
                    } else {
                        return self.read_if_needed();
                    }
                }
            }
        }
    }

    /// Returns keys and values that are not needed any more, to be dropped without a lock.
    pub(super) fn take_unused(&mut self) -> Unused {
        let mut unused = std::mem::take(&mut self.unused);
        unused.updates.extend(self.ahead.removed.drain(..).map(|item| item.payload));
        unused
    }

    fn finish(&mut self) -> Option<Position> {
        self.applying = None;
        self.applied = self.synced.as_ref().map(|synced| synced.position);
        self.applied
    }

    fn begin_update(&mut self, item: Item<Changes>) {
        let (entries, bytes) = self.replica.after_update(&item.payload);
        let is_larger = entries > self.replica.len() || bytes > self.replica.bytes();
        if is_larger && (entries > self.limits.entries || bytes > self.limits.bytes) {
            self.exceeded(entries, bytes);
            self.unused.updates.push(item.payload);
            return;
        }
        if let Some(synced) = &mut self.synced {
            synced.position = item.position;
        }
        self.applying = Some(Applying::Update(item.payload.into_iter()));
    }

    /// Begins to load a snapshot. A step if the replica is newer than it.
    fn begin_snapshot(&mut self, read: u64, snapshot: Snapshot) -> Option<FollowStep> {
        let Snapshot { epochs, top, entries } = snapshot;
        self.ahead.forget_before(read);
        let at = epochs.at(top);
        let before = self.synced.as_ref().map(|synced| synced.position);
        if before.is_some_and(|before| before.epoch == at.epoch && before.offset > top) {
            self.unused.entries.extend(entries);
            self.applied_read = Some(read);
            return Some(FollowStep::Loaded(None));
        }
        if let Some((acknowledged, next_read)) = self.acknowledged
            && !epochs.has(acknowledged.epoch)
        {
            if read < next_read {
                // The snapshot may be older than the update.
                self.is_behind = true;
            } else {
                self.acknowledged = None;
            }
        }
        let is_new_epoch = before.is_some_and(|before| before.epoch != at.epoch);
        self.synced = Some(Synced { epochs, position: at });
        self.applying = Some(Applying::Snapshot(Loading::new(entries), read, is_new_epoch));
        None
    }

    fn needs_read(&self) -> bool {
        let is_wanted = match (&self.synced, self.wanted) {
            (Some(synced), Some(wanted)) => {
                synced.position.epoch != wanted.epoch || synced.position.offset < wanted.offset
            }
            _ => false,
        };
        self.is_behind || is_wanted || !self.ahead.is_empty()
    }

    fn read_if_needed(&mut self) -> Option<FollowStep> {
        if self.reading.is_some() || self.has_failed || self.too_large.is_some() {
            return None;
        }
        if !self.needs_read() {
            self.wanted = None;
            return None;
        }
        (self.is_behind, self.has_news) = (false, false);
        if self.synced.is_some() {
            self.wanted = None;
        }
        let read = self.next_read;
        self.next_read += 1;
        self.reading = Some(read);
        Some(FollowStep::Read(read, self.highest()))
    }
}

/// Returns the higher position if both are of one epoch, and otherwise the first one.
fn higher(first: Option<Position>, second: Option<Position>) -> Option<Position> {
    match (first, second) {
        (Some(first), Some(second)) if first.epoch == second.epoch && first.offset < second.offset => {
            Some(second)
        }
        _ => first,
    }
}
