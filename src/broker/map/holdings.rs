//! `Holdings`: the entries that this node holds in one map. Pure, without I/O.
//!
//! The program says which entries the node holds, and the replica shows which ones it has. If they
//! differ, the entries are set or removed: after another lease has begun, after the store has lost
//! them, and after an operation whose outcome is unknown. An entry that another owner has set is
//! lost instead.
//!
//! Invariants: one batch of changes is under way at a time, with each key at most once, so
//! operations on a key keep their order. A change that was not asked for has a condition. An entry
//! is lost only if the replica has everything that this node knows of it.

use super::{
    follower::MapFollower,
    holding::{HoldRequest, Holding, HoldingAction, Identity, Since},
};
use crate::broker::store::{BrokerError, Changed, MapChange, MapCondition, MapUpdate, NodeId, Position};
use crate::error::Error;
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound::{Excluded, Unbounded},
};

/// The most bytes of a batch with more than one change.
const BATCH_BYTES: usize = 256 << 10;

/// How many entries are compared with the replica in one step.
const CHECKED_PER_STEP: usize = 256;

/// The answer to a request.
#[derive(Debug)]
pub(super) enum HoldAnswer {
    /// The entry is held since this position.
    Held(Position),
    /// The condition did not hold.
    Refused,
    /// Whether the entry was held until now.
    Released(bool),
    Failed(Error),
}

/// Something to do, in order.
#[derive(Debug)]
pub(super) enum HoldStep<C> {
    Answer(C, HoldAnswer),
    /// The entry of the key is not held any more, because it has this owner.
    Lost(Bytes, Option<NodeId>),
}

/// Changes to be made in one step.
#[derive(Debug)]
pub(super) struct HoldBatch {
    pub(super) number: u64,
    pub(super) owner: Option<NodeId>,
    pub(super) changes: Vec<MapChange>,
}

#[derive(Debug)]
pub(super) struct Holdings<C> {
    identity: Identity,
    keys: BTreeMap<Bytes, Holding<C>>,
    /// Keys with requests.
    requested: VecDeque<Bytes>,
    /// Keys whose entries have to be set or removed.
    restoring: VecDeque<Bytes>,
    /// Whether entries are not restored before the next retry, because an update has failed.
    is_paused: bool,
    sent: Option<SentBatch<C>>,
    next_batch: u64,
    /// The most changes of the next batch. The broker may refuse changes together that it makes
    /// one by one.
    max_changes: usize,
    /// Keys to compare with the replica once that has the offset.
    waiting: BTreeSet<(u64, Bytes)>,
    /// All keys behind this one have to be compared with the replica.
    check: Option<Option<Bytes>>,
    steps: VecDeque<HoldStep<C>>,
    /// Keys and values to be dropped without a lock.
    unused: Vec<Bytes>,
}

#[derive(Debug)]
struct SentBatch<C> {
    number: u64,
    owner: Option<NodeId>,
    entries: Vec<(Bytes, Sent<C>)>,
}

#[derive(Debug)]
enum Sent<C> {
    Hold(Bytes, Option<MapCondition>, C),
    /// With the position of the entry.
    Release(Position, C),
    /// The entry is restored.
    Set,
    Remove,
}

impl<C> Holdings<C> {
    pub(super) fn new(name: String) -> Self {
        Holdings {
            identity: Identity { name, node: None },
            keys: BTreeMap::new(),
            requested: VecDeque::new(),
            restoring: VecDeque::new(),
            is_paused: false,
            sent: None,
            next_batch: 0,
            max_changes: MapUpdate::LIMIT,
            waiting: BTreeSet::new(),
            check: None,
            steps: VecDeque::new(),
            unused: Vec::new(),
        }
    }

    /// Returns the number of keys that are held or have requests.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|holding| holding.value.is_some())
    }

    // ---- inputs ---------------------------------------------------------------------------------

    /// The program asks for something.
    pub(super) fn request(&mut self, key: Bytes, request: HoldRequest<C>) {
        let holding = self.keys.entry(key.clone()).or_default();
        holding.requests.push_back(request);
        if holding.is_sent || std::mem::replace(&mut holding.is_requested, true) {
            self.unused.push(key);
        } else {
            self.requested.push_back(key);
        }
    }

    /// The node has a lease with this id, or none.
    pub(super) fn set_node(&mut self, node: Option<NodeId>) {
        if self.identity.node != node {
            self.is_paused = false;
            self.compare_all(node.is_some());
            self.identity.node = node;
        }
    }

    /// An entry of the replica has changed.
    pub(super) fn observe(&mut self, key: &Bytes, follower: &MapFollower) {
        let found = follower.replica().get(key);
        if self.identity.owns(found.and_then(|found| found.owner.as_ref())) && !self.has(key) {
            // An operation that was reported as failed was made.
            self.keys.insert(key.clone(), Holding::default());
        }
        self.decide(key, follower);
    }

    /// The replica has an offset.
    pub(super) fn advanced(&mut self, offset: u64, follower: &MapFollower) {
        let later = self.waiting.split_off(&(offset.saturating_add(1), Bytes::new()));
        for (_, key) in std::mem::replace(&mut self.waiting, later) {
            self.decide(&key, follower);
            self.unused.push(key);
        }
    }

    /// A snapshot was loaded.
    pub(super) fn loaded(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.unused.extend(waiting.into_iter().map(|(_, key)| key));
        self.compare_all(!self.keys.is_empty());
    }

    /// Compares all keys with the replica, one after the other, or none.
    fn compare_all(&mut self, on: bool) {
        let before = std::mem::replace(&mut self.check, on.then_some(None));
        self.unused.extend(before.flatten());
    }

    /// A snapshot could not be read. Requests that wait for it fail.
    pub(super) fn load_failed(&mut self, error: &Error, follower: &MapFollower) {
        for holding in self.keys.values_mut().filter(|holding| holding.is_doubtful(follower)) {
            let callers = holding.take_callers(&mut self.unused).into_iter();
            self.steps.extend(callers.map(|caller| failed(caller, error.clone())));
        }
    }

    /// A batch was answered.
    pub(super) fn answered(
        &mut self,
        number: u64,
        result: Result<Changed, Error>,
        follower: &mut MapFollower,
    ) {
        let Some(sent) = self.sent.take_if(|sent| sent.number == number) else { return };
        let result = match result {
            Ok(changed) if changed.made.len() == sent.entries.len() => {
                follower.acknowledged(changed.position);
                Ok(changed)
            }
            Ok(_) => Err(BrokerError::failed("an answer for other changes").into()),
            Err(error) => Err(error),
        };
        let cause = result.as_ref().err().and_then(BrokerError::of).cloned();
        let is_setting = matches!(result, Err(Error::Setting(_)));
        // Errors of other kinds are unknown here, so the outcome is unknown.
        let is_uncertain =
            result.is_err() && !is_setting && cause.as_ref().is_none_or(BrokerError::may_be_stored);
        let size = sent.entries.len();
        match &cause {
            _ if result.is_ok() => self.max_changes = (self.max_changes * 2).min(MapUpdate::LIMIT),
            None | Some(BrokerError::Failed(_)) => self.max_changes = (size / 2).max(1),
            Some(_) => {}
        }
        // Nothing was made, and the changes of smaller batches may be.
        let is_split = is_setting && size > 1;
        if is_uncertain {
            follower.refresh();
        }
        if cause == Some(BrokerError::LeaseEnded) && sent.owner == self.identity.node {
            self.identity.node = None;
        }
        self.is_paused |= result.is_err() && !is_split;
        let position = result.as_ref().ok().map(|changed| changed.position);
        for (at, (key, sent)) in sent.entries.into_iter().enumerate() {
            let made = result.as_ref().map(|changed| changed.made[at]).map_err(Error::clone);
            // The map is full, or the replica is older than a change of another node.
            self.is_paused |= matches!((&sent, &made), (Sent::Set, Ok(false)));
            if let Some(holding) = self.keys.get_mut(&key) {
                holding.is_sent = false;
                if is_uncertain || position.is_some() {
                    holding.since = Some(Since { position, read: follower.next_read() });
                }
            }
            match sent {
                sent @ (Sent::Hold(..) | Sent::Release(..)) if is_split => self.send_again(&key, sent),
                sent => self.entry_answered(&key, sent, made, position),
            }
            self.proceed(&key, follower);
            self.unused.push(key);
        }
    }

    fn entry_answered(
        &mut self,
        key: &Bytes,
        sent: Sent<C>,
        made: Result<bool, Error>,
        position: Option<Position>,
    ) {
        let holding = self.keys.get_mut(key);
        let step = match (sent, made, position) {
            (Sent::Hold(value, _, caller), Ok(true), Some(position)) => {
                let replaced = holding.and_then(|holding| {
                    holding.at = Some(position);
                    holding.value.replace(value)
                });
                self.unused.extend(replaced);
                HoldStep::Answer(caller, HoldAnswer::Held(position))
            }
            (Sent::Hold(value, _, caller), made, _) => {
                self.unused.push(value);
                HoldStep::Answer(caller, made.map_or_else(HoldAnswer::Failed, |_| HoldAnswer::Refused))
            }
            // The batch failed because it also had entries to set. This one may still be there.
            (sent @ Sent::Release(..), Err(error), _) if is_lease_ended(&error) => {
                return self.send_again(key, sent);
            }
            (Sent::Release(_, caller), made, _) => {
                if let Some(holding) = holding {
                    holding.at = None;
                }
                HoldStep::Answer(caller, made.map_or_else(HoldAnswer::Failed, HoldAnswer::Released))
            }
            (Sent::Set, Ok(true), Some(position)) => {
                if let Some(holding) = holding {
                    holding.at = Some(position);
                }
                return;
            }
            (Sent::Set | Sent::Remove, ..) => return,
        };
        self.steps.push_back(step);
    }

    /// Puts a request back in front of the later ones for the key.
    fn send_again(&mut self, key: &Bytes, sent: Sent<C>) {
        let Some(holding) = self.keys.get_mut(key) else { return };
        let request = match sent {
            Sent::Hold(value, condition, caller) => HoldRequest::Hold { value, condition, caller },
            Sent::Release(at, caller) => {
                holding.at = Some(at);
                HoldRequest::Release { caller }
            }
            Sent::Set | Sent::Remove => return,
        };
        holding.requests.push_front(request);
    }

    /// Time has passed: restores entries again after an error.
    pub(super) fn retry(&mut self) {
        self.is_paused = false;
    }

    /// Returns whether an update has failed since the last [`retry`](Holdings::retry).
    pub(super) fn has_failed(&self) -> bool {
        self.is_paused
    }

    /// Returns whether something is not done before [`retry`](Holdings::retry).
    pub(super) fn needs_retry(&self) -> bool {
        self.is_paused && !self.restoring.is_empty()
    }

    /// The program does not need the map any more: all entries are released, also those of requests
    /// that are not answered yet.
    pub(super) fn release_all(&mut self) {
        for holding in self.keys.values_mut() {
            holding.abandon(&mut self.unused);
        }
        self.compare_all(true);
    }

    /// Takes all requests that were not sent.
    pub(super) fn take_requests(&mut self) -> Vec<HoldRequest<C>> {
        self.keys.values_mut().flat_map(|holding| holding.requests.drain(..)).collect()
    }

    // ---- outputs --------------------------------------------------------------------------------

    pub(super) fn next_step(&mut self) -> Option<HoldStep<C>> {
        self.steps.pop_front()
    }

    /// Compares some entries with the replica. Returns whether there were any.
    pub(super) fn check_some(&mut self, follower: &MapFollower) -> bool {
        let Some(last) = self.check.take() else { return false };
        let from = last.as_ref().map_or(Unbounded, Excluded);
        let keys = self.keys.range::<Bytes, _>((from, Unbounded)).map(|(key, _)| key.clone());
        let keys: Vec<Bytes> = keys.take(CHECKED_PER_STEP).collect();
        self.check = keys.last().cloned().map(Some);
        self.unused.extend(last);
        for key in &keys {
            self.proceed(key, follower);
        }
        let is_any = !keys.is_empty();
        self.unused.extend(keys);
        is_any
    }

    /// Returns the next changes to be made.
    pub(super) fn next_batch(&mut self, follower: &MapFollower) -> Option<HoldBatch> {
        if self.sent.is_some() {
            return None;
        }
        let (mut changes, mut entries) = (Vec::new(), Vec::new());
        // A change that is alone may have any size.
        let mut room = usize::MAX;
        while changes.len() < self.max_changes && room > 0 {
            let Some((key, change, sent)) = self.next_change(room, follower) else { break };
            room = room.min(BATCH_BYTES).saturating_sub(change.size());
            changes.push(change);
            entries.push((key, sent));
        }
        if changes.is_empty() {
            return None;
        }
        // A batch that only removes entries works without a lease.
        let sets = changes.iter().any(|change| change.value.is_some());
        let (number, owner) = (self.next_batch, self.identity.node.clone().filter(|_| sets));
        self.next_batch += 1;
        self.sent = Some(SentBatch { number, owner: owner.clone(), entries });
        Some(HoldBatch { number, owner, changes })
    }

    /// Returns the next change, unless it may have more bytes than `room`.
    fn next_change(&mut self, room: usize, follower: &MapFollower) -> Option<(Bytes, MapChange, Sent<C>)> {
        while let Some(key) = self.requested.pop_front() {
            if self.most_bytes(&key) > room {
                self.requested.push_front(key);
                return None;
            }
            if let Some((change, sent)) = self.requested_change(&key, follower) {
                return Some((key, change, sent));
            }
            self.unused.push(key);
        }
        while !self.is_paused
            && let Some(key) = self.restoring.pop_front()
        {
            if self.most_bytes(&key) > room {
                self.restoring.push_front(key);
                return None;
            }
            if let Some((change, sent)) = self.restoring_change(&key, follower) {
                return Some((key, change, sent));
            }
            self.unused.push(key);
        }
        None
    }

    /// Returns the most bytes of the next change of a key.
    fn most_bytes(&self, key: &Bytes) -> usize {
        let value = self.keys.get(key).map_or(0, Holding::longest_value);
        key.len() + value
    }

    /// Returns the change of the next request for a key. Answers requests that need none.
    fn requested_change(&mut self, key: &Bytes, follower: &MapFollower) -> Option<(MapChange, Sent<C>)> {
        let holding = self.keys.get_mut(key)?;
        holding.is_requested = false;
        if holding.is_sent {
            // Goes on after the answer.
            return None;
        }
        if holding.is_doubtful(follower) {
            // Goes on when a snapshot is loaded, unless none is read.
            if let Some(cause) = follower.too_large() {
                let callers = holding.take_callers(&mut self.unused).into_iter();
                self.steps.extend(callers.map(|caller| failed(caller, cause.clone().into())));
            }
            return None;
        }
        let is_shown = holding.since.is_none_or(|since| since.is_covered(follower));
        let found = follower.replica().get(key).filter(|_| is_shown);
        let mine = found.filter(|found| self.identity.owns(found.owner.as_ref())).map(|found| found.position);
        while let Some(request) = holding.requests.pop_front() {
            let mut change = MapChange::remove(key.clone());
            match request {
                HoldRequest::Hold { caller, value, .. } if self.identity.node.is_none() => {
                    self.unused.push(value);
                    self.steps.push_back(failed(caller, BrokerError::LeaseEnded.into()));
                }
                HoldRequest::Hold { value, condition, caller } => {
                    // The entry of an earlier request that was reported as failed.
                    let orphan = mine.filter(|_| holding.value.is_none());
                    change.condition = match (condition, orphan) {
                        (Some(MapCondition::Absent), Some(at)) => Some(MapCondition::Unchanged(at)),
                        _ => condition,
                    };
                    change.value = Some(value.clone());
                    holding.is_sent = true;
                    return Some((change, Sent::Hold(value, condition, caller)));
                }
                HoldRequest::Release { caller } => {
                    let at = mine.or(holding.at);
                    self.unused.extend(holding.value.take());
                    if let Some(at) = at {
                        change.condition = Some(MapCondition::Unchanged(at));
                        holding.is_sent = true;
                        return Some((change, Sent::Release(at, caller)));
                    }
                    self.steps.push_back(HoldStep::Answer(caller, HoldAnswer::Released(false)));
                }
                HoldRequest::Abandon => self.unused.extend(holding.value.take()),
            }
        }
        self.decide(key, follower);
        None
    }

    /// Returns the change that restores an entry, if it still needs one.
    fn restoring_change(&mut self, key: &Bytes, follower: &MapFollower) -> Option<(MapChange, Sent<C>)> {
        let holding = self.keys.get_mut(key)?;
        holding.is_restoring = false;
        if holding.is_sent || !holding.requests.is_empty() {
            // Decided after their answers.
            return None;
        }
        let mut change = MapChange::remove(key.clone());
        let sent = match holding.action(key, &self.identity, follower) {
            HoldingAction::Set(condition) => {
                change.condition = Some(condition);
                change.value = holding.value.clone();
                Sent::Set
            }
            HoldingAction::Remove(at) => {
                change.condition = Some(MapCondition::Unchanged(at));
                Sent::Remove
            }
            _ => {
                self.decide(key, follower);
                return None;
            }
        };
        holding.is_sent = true;
        Some((change, sent))
    }

    // ---- decisions ------------------------------------------------------------------------------

    /// Goes on with a key: with its requests, or by the replica.
    fn proceed(&mut self, key: &Bytes, follower: &MapFollower) {
        let Some(holding) = self.keys.get_mut(key) else { return };
        if holding.is_sent {
            return;
        }
        if holding.requests.is_empty() {
            return self.decide(key, follower);
        }
        if !std::mem::replace(&mut holding.is_requested, true) {
            self.requested.push_back(key.clone());
        }
    }

    /// Compares an entry with the replica.
    fn decide(&mut self, key: &Bytes, follower: &MapFollower) {
        let Some(holding) = self.keys.get_mut(key) else { return };
        if holding.is_sent || !holding.requests.is_empty() {
            return;
        }
        let action = holding.action(key, &self.identity, follower);
        if !matches!(action, HoldingAction::Wait(_)) {
            holding.since = None;
        }
        match action {
            HoldingAction::Wait(since) => {
                if let Some(position) = since.position {
                    self.waiting.insert((position.offset, key.clone()));
                }
            }
            HoldingAction::None => {
                let found = follower.replica().get(key);
                if let Some(found) = found.filter(|found| self.identity.owns(found.owner.as_ref())) {
                    holding.at = Some(found.position);
                    self.unused.extend(holding.value.replace(found.value.clone()));
                }
            }
            HoldingAction::Set(_) | HoldingAction::Remove(_) => {
                if !std::mem::replace(&mut holding.is_restoring, true) {
                    self.restoring.push_back(key.clone());
                }
            }
            HoldingAction::Forget => self.forget(key),
            HoldingAction::Lose(by) => {
                self.forget(key);
                self.steps.push_back(HoldStep::Lost(key.clone(), by));
            }
        }
    }

    fn forget(&mut self, key: &Bytes) {
        if let Some((key, holding)) = self.keys.remove_entry(key) {
            self.unused.extend(holding.value);
            self.unused.push(key);
        }
    }

    /// Returns keys and values that are not needed any more, to be dropped without a lock.
    pub(super) fn take_unused(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.unused)
    }
}

fn failed<C>(caller: C, error: Error) -> HoldStep<C> {
    HoldStep::Answer(caller, HoldAnswer::Failed(error))
}

fn is_lease_ended(error: &Error) -> bool {
    BrokerError::of(error) == Some(&BrokerError::LeaseEnded)
}
