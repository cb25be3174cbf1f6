//! A map of one node against a model of the store, with random operations.
//!
//! Events are lost, doubled and reordered. Answers are late, fail or get lost. The store loses
//! updates and whole maps, and ends the lease of the node. Other nodes change the same entries.

mod batches;

use super::{
    follower::MapLimits,
    holding::HoldRequest,
    holdings::{HoldAnswer, HoldBatch},
    replica::ReplicaChange,
    state::{MapState, MapStep},
};
use crate::broker::store::{
    BrokerError, Changed, EntryChange, Epochs, MapChange, MapCondition, MapEntry, NodeId, Position, Snapshot,
    TopicTop,
};
use bytes::Bytes;
use proptest::prelude::*;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

const LIMITS: MapLimits = MapLimits { entries: 100, bytes: 10_000, ahead_updates: 3, ahead_bytes: 300 };

#[derive(Debug, Clone)]
enum Op {
    /// Another program sets entries without an owner, removes them, or holds them for `b`.
    Set(u8),
    /// Sets a value that alone exceeds the limits of the replica.
    SetLarge(u8),
    Remove(u8),
    OtherHolds(u8),
    /// Another program changes all entries in one step.
    SetAll,
    Rewind(usize),
    LoseMap,
    LoseEntries,
    Deliver(usize),
    DeliverTwice(usize),
    Drop(usize),
    Execute,
    ReadAnswer,
    FailRead,
    ExecuteUpdate,
    UpdateAnswer,
    /// The reply to an update gets lost, whether it was made or not.
    LoseUpdateAnswer,
    AskVerify,
    ExecuteVerify,
    AnswerVerify,
    Hold(u8, Wish),
    Release(u8),
    /// The program drops its last handle.
    ReleaseAll,
    /// The store ends the lease of the node, and removes its entries.
    EndLease,
    /// The store ends the lease, and removes the entries later.
    EndLeaseOnly,
    Sweep,
    NoticeLease,
    BeginLease,
    Interrupt(bool),
    Retry,
}

#[derive(Debug, Clone)]
enum Wish {
    Always,
    Absent,
    /// The entry of the replica is unchanged.
    Shown,
}

type MakeOp = fn(u8) -> Op;

/// Operations with their weights, made of a number. One table is drawn from faster than a tree of
/// strategies.
const OPS: &[(u16, MakeOp)] = &[
    (2, |n| Op::Set(n % 4)),
    (1, |n| Op::SetLarge(n % 4)),
    (2, |n| Op::Remove(n % 4)),
    (2, |n| Op::OtherHolds(n % 4)),
    (1, |_| Op::SetAll),
    (1, |n| Op::Rewind(usize::from(n % 3) + 1)),
    (1, |_| Op::LoseMap),
    (1, |_| Op::LoseEntries),
    (10, |n| Op::Deliver(usize::from(n % 3))),
    (1, |n| Op::DeliverTwice(usize::from(n % 3))),
    (1, |n| Op::Drop(usize::from(n % 3))),
    (4, |_| Op::Execute),
    (4, |_| Op::ReadAnswer),
    (1, |_| Op::FailRead),
    (6, |_| Op::ExecuteUpdate),
    (6, |_| Op::UpdateAnswer),
    (1, |_| Op::LoseUpdateAnswer),
    (1, |_| Op::AskVerify),
    (1, |_| Op::ExecuteVerify),
    (1, |_| Op::AnswerVerify),
    (3, |n| Op::Hold(n % 4, Wish::Always)),
    (3, |n| Op::Hold(n % 4, Wish::Absent)),
    (2, |n| Op::Hold(n % 4, Wish::Shown)),
    (4, |n| Op::Release(n % 4)),
    (1, |_| Op::ReleaseAll),
    (1, |_| Op::EndLease),
    (1, |_| Op::EndLeaseOnly),
    (1, |_| Op::Sweep),
    (2, |_| Op::NoticeLease),
    (2, |_| Op::BeginLease),
    (1, |n| Op::Interrupt(n % 2 == 0)),
    (1, |_| Op::Retry),
];

fn op() -> impl Strategy<Value = Op> {
    let sum: u16 = OPS.iter().map(|(weight, _)| weight).sum();
    (0..sum, any::<u8>()).prop_map(|(mut at, n)| {
        let chosen = OPS.iter().find(|(weight, _)| {
            let is_chosen = at < *weight;
            at = at.saturating_sub(*weight);
            is_chosen
        });
        chosen.unwrap().1(n)
    })
}

fn key(key: u8) -> Bytes {
    owned(vec![b'a' + key])
}

thread_local! {
    /// Whether the map would be locked.
    static IS_LOCKED: Cell<bool> = const { Cell::new(false) };
    static IS_DROPPED_LOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Bytes of the program, whose destructor may call the map.
struct Owned(Vec<u8>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if IS_LOCKED.get() {
            IS_DROPPED_LOCKED.set(true);
        }
    }
}

fn owned(bytes: impl Into<Vec<u8>>) -> Bytes {
    Bytes::from_owner(Owned(bytes.into()))
}

type Map = MapState<KeyCaller>;

/// Does something that needs the lock of the map, and checks that no bytes of the program are
/// dropped under it.
fn locked<R>(map: &mut Map, change: impl FnOnce(&mut Map) -> R) -> R {
    IS_LOCKED.set(true);
    let result = change(map);
    let unused = map.take_unused();
    IS_LOCKED.set(false);
    drop(unused);
    assert!(!IS_DROPPED_LOCKED.take(), "keys and values are dropped without the lock");
    result
}

type Entries = BTreeMap<Bytes, MapEntry>;

/// The store of one map.
struct Store {
    epochs: Epochs,
    next_epoch: u64,
    top: u64,
    entries: Entries,
    /// The entries behind each offset of the newest epoch.
    states: BTreeMap<u64, Entries>,
    /// Whether the next change begins an epoch.
    has_restarted: bool,
    events: VecDeque<(Position, Vec<EntryChange>)>,
    /// Counts the changes.
    time: u64,
    /// When another owner had the key last, while it has not now.
    other_until: BTreeMap<Bytes, u64>,
    /// Nodes with a lease.
    alive: BTreeSet<NodeId>,
    next_value: u64,
    max_entries: usize,
}

impl Store {
    fn new() -> Self {
        Store {
            epochs: Epochs::first(1),
            next_epoch: 2,
            top: 0,
            entries: BTreeMap::new(),
            states: BTreeMap::from([(0, BTreeMap::new())]),
            has_restarted: false,
            events: VecDeque::new(),
            time: 0,
            other_until: BTreeMap::new(),
            alive: BTreeSet::new(),
            next_value: 0,
            max_entries: usize::MAX,
        }
    }

    fn value(&mut self) -> Bytes {
        self.next_value += 1;
        owned(self.next_value.to_string())
    }

    fn is_other(entry: &MapEntry) -> bool {
        entry.owner.as_ref().is_none_or(|owner| owner.name() != "a")
    }

    /// Notes which keys have other owners, before and after each change.
    fn note(&mut self) {
        self.time += 1;
        let others = self.entries.values().filter(|entry| Self::is_other(entry));
        self.other_until.extend(others.map(|entry| (entry.key.clone(), self.time)));
    }

    fn had_other_after(&self, key: &Bytes, time: u64) -> bool {
        self.entries.get(key).is_some_and(Self::is_other)
            || self.other_until.get(key).is_some_and(|until| *until > time)
    }

    fn begin_epoch(&mut self) {
        self.epochs.begin(self.next_epoch, self.top);
        self.next_epoch += 1;
        self.has_restarted = false;
        self.states = BTreeMap::from([(self.top, self.entries.clone())]);
    }

    fn see(&mut self, seen: Option<Position>) {
        if seen.is_some_and(|seen| self.epochs.was_rewound(seen, self.top)) {
            self.begin_epoch();
        }
    }

    fn change(
        &mut self,
        owner: Option<NodeId>,
        changes: &[MapChange],
        seen: Option<Position>,
    ) -> Result<Changed, BrokerError> {
        if owner.as_ref().is_some_and(|owner| !self.alive.contains(owner)) {
            return Err(BrokerError::LeaseEnded);
        }
        self.note();
        self.see(seen);
        if self.has_restarted {
            self.begin_epoch();
        }
        let next = self.epochs.at(self.top + 1);
        let (mut made, mut events) = (Vec::new(), Vec::new());
        for MapChange { key, value, condition } in changes {
            let found = self.entries.get(key);
            let holds = match condition {
                None => true,
                Some(MapCondition::Absent) => found.is_none(),
                Some(MapCondition::Unchanged(at)) => found.is_some_and(|found| found.position == *at),
            };
            let has_room = found.is_some() || self.entries.len() < self.max_entries;
            let is_made = holds && (found.is_some() || value.is_some() && has_room);
            made.push(is_made);
            if !is_made {
                continue;
            }
            let mut event = EntryChange::new(key.clone(), value.clone());
            match value {
                Some(value) => {
                    event.owner.clone_from(&owner);
                    let mut entry = MapEntry::new(key.clone(), value.clone(), next);
                    entry.owner.clone_from(&owner);
                    self.entries.insert(key.clone(), entry);
                }
                None => drop(self.entries.remove(key)),
            }
            events.push(event);
        }
        if events.is_empty() {
            return Ok(Changed::new(self.epochs.at(self.top), made));
        }
        self.top += 1;
        self.states.insert(self.top, self.entries.clone());
        self.events.push_back((next, events));
        self.note();
        Ok(Changed::new(next, made))
    }

    fn other(&mut self, changes: Vec<MapChange>, owner: Option<&NodeId>) {
        let changed = self.change(owner.cloned(), &changes, None);
        changed.expect("other nodes have leases");
    }

    fn rewind(&mut self, updates: usize) {
        self.note();
        for _ in 0..updates {
            if self.top >= self.epochs.newest().first && self.states.len() > 1 {
                self.states.pop_last();
                self.top -= 1;
            }
        }
        self.entries = self.states.values().next_back().cloned().unwrap_or_default();
        self.has_restarted = true;
        self.note();
    }

    fn lose_map(&mut self) {
        self.note();
        self.epochs = Epochs::first(self.next_epoch);
        self.next_epoch += 1;
        self.entries.clear();
        (self.top, self.has_restarted) = (0, false);
        self.states = BTreeMap::from([(0, BTreeMap::new())]);
    }

    /// Like a store that finds fewer entries than it has counted.
    fn lose_entries(&mut self) {
        self.note();
        self.entries.pop_first();
        self.begin_epoch();
    }

    fn sweep(&mut self) {
        let is_dead = |owner: &NodeId| !self.alive.contains(owner);
        let of_dead = |entry: &&MapEntry| entry.owner.as_ref().is_some_and(is_dead);
        let dead = self.entries.values().filter(of_dead).map(|entry| MapChange::remove(entry.key.clone()));
        let dead: Vec<_> = dead.collect();
        self.other(dead, None);
    }

    fn snapshot(&mut self, seen: Option<Position>) -> Snapshot {
        self.see(seen);
        Snapshot::new(self.epochs.clone(), self.top, self.entries.values().cloned().collect())
    }
}

/// An operation that the store has not executed, or has not answered.
enum Under<Q, A> {
    Asked(Q),
    Answered(A),
}

/// The result of an update, and when it was made.
type Made = (Result<Changed, BrokerError>, u64);

/// A key, and whether the request is to hold it.
type KeyCaller = (Bytes, bool);

/// A map of the node `a`, with the program that uses it.
struct Simulation {
    store: Store,
    map: Map,
    /// What the program knows by the events.
    shadow: Entries,
    /// The keys that the program holds, and when the store made them its own at the latest.
    held: BTreeMap<Bytes, u64>,
    /// Requests without an answer.
    unanswered: usize,
    /// How many requests for each key have no answer, and how many of them the program made before
    /// it dropped its last handle.
    waiting: BTreeMap<Bytes, (usize, usize)>,
    read: Option<(u64, Under<Option<Position>, Snapshot>)>,
    update: Option<(HoldBatch, Option<Position>, Option<Made>)>,
    verify: Option<Under<Option<Position>, TopicTop>>,
    is_interrupted: bool,
    reads: usize,
    updates: usize,
    lease: Option<NodeId>,
    incarnation: u64,
    other: NodeId,
    lost: usize,
    /// When the last update that was answered was made.
    made_at: u64,
}

impl Simulation {
    fn new() -> Self {
        let mut simulation = Simulation {
            store: Store::new(),
            map: MapState::new(LIMITS, "a".to_owned()),
            shadow: BTreeMap::new(),
            held: BTreeMap::new(),
            unanswered: 0,
            waiting: BTreeMap::new(),
            read: None,
            update: None,
            verify: None,
            is_interrupted: false,
            reads: 0,
            updates: 0,
            lease: None,
            incarnation: 0,
            other: NodeId::new("b", 1).unwrap(),
            lost: 0,
            made_at: 0,
        };
        simulation.store.alive.insert(simulation.other.clone());
        simulation.run(Op::BeginLease);
        simulation
    }

    fn run(&mut self, op: Op) {
        let (store, map) = (&mut self.store, &mut self.map);
        match op {
            Op::Set(at) => {
                let change = MapChange::set(key(at), store.value());
                store.other(vec![change], None);
            }
            Op::SetLarge(at) => {
                store.other(vec![MapChange::set(key(at), owned(vec![b'x'; LIMITS.bytes]))], None);
            }
            Op::Remove(at) => store.other(vec![MapChange::remove(key(at))], None),
            Op::OtherHolds(at) => {
                let change = MapChange::set(key(at), store.value());
                store.other(vec![change], Some(&self.other));
            }
            Op::SetAll => {
                let changes = (0..4).map(|at| MapChange::set(key(at), store.value())).collect();
                store.other(changes, None);
            }
            Op::Rewind(updates) => store.rewind(updates),
            Op::LoseMap => store.lose_map(),
            Op::LoseEntries => store.lose_entries(),
            Op::Deliver(at) | Op::DeliverTwice(at) | Op::Drop(at) => {
                if let Some((position, changes)) = store.events.remove(at) {
                    if matches!(op, Op::DeliverTwice(_)) {
                        store.events.push_back((position, changes.clone()));
                    }
                    if !matches!(op, Op::Drop(_)) {
                        locked(map, |map| map.follower.changed(position, changes));
                    }
                }
            }
            Op::Execute => {
                if let Some((_, under)) = &mut self.read
                    && let Under::Asked(seen) = under
                {
                    *under = Under::Answered(store.snapshot(*seen));
                }
            }
            Op::ReadAnswer => match self.read.take() {
                Some((read, Under::Answered(snapshot))) => {
                    drop(locked(map, |map| map.read_answered(read, Ok(snapshot))));
                }
                other => self.read = other,
            },
            Op::FailRead => {
                if let Some((read, _)) = self.read.take() {
                    let error = BrokerError::Unreachable("cut".into()).into();
                    drop(locked(map, |map| map.read_answered(read, Err(error))));
                }
            }
            Op::ExecuteUpdate => {
                if let Some((HoldBatch { owner, changes, .. }, seen, answer @ None)) = &mut self.update {
                    let changed = store.change(owner.clone(), changes, *seen);
                    *answer = Some((changed, store.time));
                }
            }
            Op::UpdateAnswer => match self.update.take() {
                Some((batch, _, Some((answer, time)))) => {
                    for (change, made) in
                        batch.changes.iter().zip(answer.iter().flat_map(|changed| &changed.made))
                    {
                        if *made && change.value.is_some() {
                            self.held.entry(change.key.clone()).and_modify(|since| *since = time);
                        }
                    }
                    self.made_at = time;
                    locked(map, |map| map.update_answered(batch.number, answer.map_err(Into::into)));
                }
                other => self.update = other,
            },
            Op::LoseUpdateAnswer => {
                if let Some((batch, ..)) = self.update.take() {
                    let error = BrokerError::Uncertain("cut".into()).into();
                    locked(map, |map| map.update_answered(batch.number, Err(error)));
                }
            }
            Op::AskVerify if self.verify.is_none() => {
                self.verify = Some(Under::Asked(map.follower.highest()));
            }
            Op::ExecuteVerify => {
                if let Some(Under::Asked(seen)) = self.verify {
                    store.see(seen);
                    self.verify = Some(Under::Answered(TopicTop::new(store.epochs.clone(), store.top)));
                }
            }
            Op::AnswerVerify => match self.verify.take() {
                Some(Under::Answered(top)) => map.follower.verified(&top),
                other => self.verify = other,
            },
            Op::Hold(at, wish) => {
                let condition = match wish {
                    Wish::Always => None,
                    Wish::Absent => Some(MapCondition::Absent),
                    Wish::Shown => {
                        let shown = map.follower.replica().get(&key(at));
                        shown.map(|entry| MapCondition::Unchanged(entry.position))
                    }
                };
                self.unanswered += 1;
                self.waiting.entry(key(at)).or_default().0 += 1;
                let request = HoldRequest::Hold { value: store.value(), condition, caller: (key(at), true) };
                locked(map, |map| map.holdings.request(key(at), request));
            }
            Op::Release(at) if map.holdings.has(&key(at)) => {
                self.unanswered += 1;
                self.waiting.entry(key(at)).or_default().0 += 1;
                let request = HoldRequest::Release { caller: (key(at), false) };
                locked(map, |map| map.holdings.request(key(at), request));
            }
            Op::ReleaseAll => {
                self.held.clear();
                self.waiting.values_mut().for_each(|(waiting, before)| *before = *waiting);
                locked(map, |map| map.holdings.release_all());
            }
            Op::EndLease | Op::EndLeaseOnly => {
                store.alive.retain(|node| node.name() != "a");
                if matches!(op, Op::EndLease) {
                    store.sweep();
                }
            }
            Op::Sweep => store.sweep(),
            Op::NoticeLease if self.lease.as_ref().is_some_and(|lease| !store.alive.contains(lease)) => {
                self.lease = None;
                locked(map, |map| map.holdings.set_node(None));
            }
            Op::BeginLease if self.lease.is_none() => {
                self.incarnation += 1;
                let node = NodeId::new("a", self.incarnation).unwrap();
                store.alive.insert(node.clone());
                self.lease = Some(node.clone());
                locked(map, |map| map.holdings.set_node(Some(node)));
            }
            Op::Interrupt(true) => map.follower.interrupted(BrokerError::Unreachable("cut".into())),
            Op::Interrupt(false) => map.follower.resumed(),
            Op::Retry => locked(map, MapState::retry),
            _ => {}
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(step) = locked(&mut self.map, MapState::next_step) {
            match step {
                MapStep::Changed(ReplicaChange { key, before, now }) => {
                    assert_eq!(self.shadow.get(&key), before.as_ref());
                    assert_ne!(before, now, "something has changed");
                    match now {
                        Some(entry) => drop(self.shadow.insert(key, entry)),
                        None => drop(self.shadow.remove(&key)),
                    }
                    self.check_shadow();
                }
                MapStep::Lost(key, by) => {
                    let since = self.held.remove(&key).expect("it was held");
                    assert!(by.as_ref().is_none_or(|by| by.name() != "a"));
                    assert_eq!(self.shadow[&key].owner, by, "the replica shows it");
                    assert!(self.store.had_other_after(&key, since), "{key:?} was not lost");
                    self.lost += 1;
                }
                MapStep::Loaded(_) | MapStep::Continue => {}
                MapStep::Interrupted(_) => {
                    assert!(!std::mem::replace(&mut self.is_interrupted, true));
                }
                MapStep::Resumed => assert!(std::mem::replace(&mut self.is_interrupted, false)),
                MapStep::Read(read, seen) => {
                    assert!(self.read.is_none(), "one read at a time");
                    self.reads += 1;
                    self.read = Some((read, Under::Asked(seen)));
                }
                MapStep::Update(batch, seen) => {
                    assert!(self.update.is_none(), "one update at a time");
                    let keys: BTreeSet<_> = batch.changes.iter().map(|change| &change.key).collect();
                    assert_eq!(keys.len(), batch.changes.len(), "each key once");
                    self.updates += 1;
                    self.update = Some((batch, seen, None));
                }
                MapStep::Answer((key, is_hold), answer) => {
                    self.unanswered -= 1;
                    let was_before = self.was_before_release_all(&key);
                    match answer {
                        HoldAnswer::Held(_) if was_before => {}
                        HoldAnswer::Held(_) => drop(self.held.insert(key, self.made_at)),
                        HoldAnswer::Refused | HoldAnswer::Failed(_) if is_hold => {}
                        HoldAnswer::Released(_) | HoldAnswer::Failed(_) => drop(self.held.remove(&key)),
                        HoldAnswer::Refused => panic!("a release has no condition"),
                    }
                }
            }
        }
    }

    /// Returns whether the first unanswered request for a key, which is answered now, was made
    /// before the program dropped its last handle.
    fn was_before_release_all(&mut self, key: &Bytes) -> bool {
        let Some((waiting, before)) = self.waiting.get_mut(key) else { return false };
        *waiting -= 1;
        let was_before = *before > 0;
        *before = before.saturating_sub(1);
        was_before
    }

    fn check_shadow(&self) {
        let replica = self.map.follower.replica();
        assert!(replica.with_prefix(b"").eq(self.shadow.values()));
        let bytes = self.shadow.values().map(|entry| entry.key.len() + entry.value.len()).sum::<usize>();
        assert_eq!((replica.len(), replica.bytes()), (self.shadow.len(), bytes));
    }

    /// Delivers everything that is under way, and checks that the node has the map, and that the
    /// store has the held entries.
    fn finish(&mut self) {
        let large = self.store.entries.values().filter(|entry| entry.value.len() >= LIMITS.bytes);
        let large = large.map(|entry| MapChange::remove(entry.key.clone())).collect();
        self.store.other(large, None);
        self.store.events.clear();
        for op in [Op::LoseUpdateAnswer, Op::NoticeLease, Op::BeginLease, Op::Interrupt(false)] {
            self.run(op);
        }
        self.store.sweep();
        for round in 0.. {
            assert!(round < 100, "the map comes to rest: {:?}", self.map);
            let before = (self.reads, self.updates);
            let is_idle = self.read.is_none() && self.update.is_none();
            self.run(Op::Retry);
            for op in [Op::AnswerVerify, Op::AskVerify, Op::ExecuteVerify, Op::AnswerVerify] {
                self.run(op);
            }
            while self.read.is_some() || self.update.is_some() || !self.store.events.is_empty() {
                for op in [Op::ExecuteUpdate, Op::UpdateAnswer, Op::Execute, Op::ReadAnswer, Op::Deliver(0)] {
                    self.run(op);
                }
                assert!(self.reads < 5000 && self.updates < 5000, "the node does not ask forever");
            }
            if is_idle && before == (self.reads, self.updates) {
                break;
            }
        }
        self.check_shadow();
        assert_eq!(self.shadow, self.store.entries);
        assert_eq!(self.map.follower.position(), Some(self.store.epochs.at(self.store.top)));
        assert_eq!(self.unanswered, 0);
        assert!(!self.is_interrupted);
        let owned = self.store.entries.values().filter(|entry| entry.owner == self.lease);
        let owned: Vec<&Bytes> = owned.map(|entry| &entry.key).collect();
        assert_eq!(owned, self.held.keys().collect::<Vec<_>>());
        assert_eq!(self.map.holdings.len(), owned.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_node_has_the_map_and_what_it_holds(ops in prop::collection::vec(op(), 1..150)) {
        let mut simulation = Simulation::new();
        ops.into_iter().for_each(|op| simulation.run(op));
        simulation.finish();
    }
}

#[test]
fn a_loss_is_reported_before_later_changes_of_the_entry() {
    let hold = || Op::Hold(0, Wish::Always);
    let mut ops = vec![hold(), Op::ExecuteUpdate, Op::SetAll, Op::Set(0), hold(), hold(), Op::UpdateAnswer];
    ops.extend([Op::EndLease, Op::Deliver(0), Op::Execute, Op::LoseUpdateAnswer, Op::ReadAnswer]);
    ops.extend([Op::Deliver(0), Op::Set(0), Op::Execute, Op::Drop(0), Op::Remove(0), Op::Deliver(1)]);
    ops.extend([Op::NoticeLease, Op::ReadAnswer]);
    let mut simulation = Simulation::new();
    ops.into_iter().for_each(|op| simulation.run(op));
    assert_eq!(simulation.lost, 1);
    simulation.finish();
}

/// Carries out everything that the node asks for.
fn serve(simulation: &mut Simulation) {
    simulation.carry_out();
    while simulation.read.is_some() || simulation.update.is_some() || !simulation.store.events.is_empty() {
        for op in [Op::Execute, Op::ReadAnswer, Op::ExecuteUpdate, Op::UpdateAnswer, Op::Deliver(0)] {
            simulation.run(op);
        }
    }
}

#[test]
fn entries_are_set_again_in_batches_after_another_lease_has_begun() {
    // Two full batches and the smallest third one.
    const ENTRIES: usize = 2001;
    let mut simulation = Simulation::new();
    simulation.map = MapState::new(MapLimits { entries: 10_000, bytes: 1 << 20, ..LIMITS }, "a".to_owned());
    simulation.read = None;
    simulation.map.holdings.set_node(simulation.lease.clone());
    for n in 0..ENTRIES {
        let key = Bytes::from(n.to_string());
        simulation.unanswered += 1;
        let request = HoldRequest::Hold { value: "x".into(), condition: None, caller: (key.clone(), true) };
        simulation.map.holdings.request(key, request);
    }
    serve(&mut simulation);
    assert_eq!(simulation.updates, 3, "at most 1000 changes each");
    for op in [Op::EndLease, Op::NoticeLease] {
        simulation.run(op);
    }
    serve(&mut simulation);
    assert!(simulation.shadow.is_empty());
    simulation.run(Op::BeginLease);
    serve(&mut simulation);
    assert_eq!(simulation.updates, 6);
    assert_eq!((simulation.held.len(), simulation.lost), (ENTRIES, 0));
    simulation.finish();
}

#[test]
fn an_entry_that_the_store_has_lost_before_its_answer_is_set_again() {
    let mut simulation = Simulation::new();
    let hold = |key| Op::Hold(key, Wish::Always);
    for op in [hold(1), Op::ExecuteUpdate, Op::LoseMap, hold(2), Op::UpdateAnswer, Op::ExecuteUpdate] {
        simulation.run(op);
    }
    simulation.run(Op::UpdateAnswer);
    simulation.finish();
    assert_eq!(simulation.held.len(), 2);
}

#[test]
fn an_older_entry_of_another_owner_that_is_back_after_a_loss_is_replaced() {
    let mut simulation = Simulation::new();
    let ops = [Op::Execute, Op::Hold(0, Wish::Always), Op::Rewind(1), Op::Set(0), Op::ExecuteUpdate];
    ops.into_iter().for_each(|op| simulation.run(op));
    let ops = [Op::UpdateAnswer, Op::ReadAnswer, Op::Rewind(2), Op::Execute, Op::Hold(1, Wish::Always)];
    ops.into_iter().for_each(|op| simulation.run(op));
    [Op::ReadAnswer, Op::Deliver(0)].into_iter().for_each(|op| simulation.run(op));
    simulation.finish();
    assert_eq!((simulation.held.len(), simulation.lost), (1, 0));
}

#[test]
fn a_full_map_is_asked_for_a_held_entry_once_for_each_retry() {
    let mut simulation = Simulation::new();
    simulation.store.max_entries = 1;
    simulation.run(Op::Hold(0, Wish::Always));
    serve(&mut simulation);
    for op in [Op::EndLease, Op::Set(1), Op::NoticeLease] {
        simulation.run(op);
    }
    let updates = simulation.updates;
    simulation.run(Op::BeginLease);
    for retries in 1..4 {
        serve(&mut simulation);
        assert_eq!(simulation.updates, updates + retries);
        assert!(simulation.map.needs_retry());
        simulation.run(Op::Retry);
    }
    simulation.run(Op::Remove(1));
    serve(&mut simulation);
    simulation.finish();
    assert_eq!(simulation.held.len(), 1);
}

#[test]
fn an_update_of_which_the_node_has_no_event_is_one_snapshot() {
    let mut simulation = Simulation::new();
    serve(&mut simulation);
    let reads = simulation.reads;
    simulation.run(Op::Set(0));
    simulation.run(Op::Drop(0));
    simulation.run(Op::Set(1));
    simulation.run(Op::Set(2));
    simulation.run(Op::Deliver(0));
    simulation.run(Op::Deliver(0));
    serve(&mut simulation);
    assert_eq!((simulation.reads, simulation.shadow.len()), (reads + 1, 3));
}

#[test]
fn a_map_that_is_too_large_is_followed_again_when_it_fits() {
    let mut simulation = Simulation::new();
    serve(&mut simulation);
    let long: Bytes = vec![b'x'; LIMITS.bytes].into();
    simulation.store.other(vec![MapChange::set("long", long)], None);
    serve(&mut simulation);
    assert!(simulation.is_interrupted && simulation.shadow.is_empty());
    simulation.run(Op::Set(0));
    simulation.run(Op::Deliver(0));
    simulation.run(Op::Retry);
    serve(&mut simulation);
    assert!(simulation.is_interrupted && simulation.shadow.is_empty(), "the snapshot is too large, too");
    let many = (0..LIMITS.entries).map(|n| MapChange::set(n.to_string(), "x")).collect();
    simulation.store.other(many, None);
    simulation.store.other(vec![MapChange::remove("long")], None);
    simulation.run(Op::Retry);
    serve(&mut simulation);
    assert!(simulation.is_interrupted, "there are too many entries");
    simulation.run(Op::Remove(0));
    simulation.run(Op::Retry);
    serve(&mut simulation);
    assert!(!simulation.is_interrupted);
    simulation.finish();
}

#[test]
fn a_map_that_is_too_large_is_read_again_only_after_a_change() {
    let mut simulation = Simulation::new();
    let verify = |simulation: &mut Simulation| {
        for op in [Op::Retry, Op::AskVerify, Op::ExecuteVerify, Op::AnswerVerify] {
            simulation.run(op);
        }
        serve(simulation);
    };
    [Op::SetLarge(0), Op::Drop(0)].into_iter().for_each(|op| simulation.run(op));
    serve(&mut simulation);
    for _ in 0..5 {
        assert!(simulation.reads == 1 && simulation.is_interrupted && !simulation.map.needs_retry());
        verify(&mut simulation);
    }
    // The event of an entry that this node has set is lost, and so is the answer.
    let hold = || Op::Hold(1, Wish::Always);
    let ops = [hold(), Op::ExecuteUpdate, Op::LoseUpdateAnswer, Op::Drop(0), hold()];
    ops.into_iter().for_each(|op| simulation.run(op));
    assert_eq!((simulation.unanswered, simulation.reads), (0, 1), "no request waits for a snapshot");
    for reads in [2, 2] {
        verify(&mut simulation);
        assert_eq!(simulation.reads, reads, "the map has changed once");
    }
    [Op::Set(2), Op::Deliver(0), Op::Retry].into_iter().for_each(|op| simulation.run(op));
    serve(&mut simulation);
    assert_eq!(simulation.reads, 3, "it is still too large");
    [Op::Remove(0), Op::Drop(0)].into_iter().for_each(|op| simulation.run(op));
    verify(&mut simulation);
    assert!(simulation.reads == 4 && !simulation.is_interrupted);
    simulation.finish();
}

#[test]
fn a_map_that_is_too_large_for_an_answer_is_read_again_only_after_a_change() {
    let mut simulation = Simulation::new();
    let verify = |simulation: &mut Simulation| {
        for op in [Op::Retry, Op::AskVerify, Op::ExecuteVerify, Op::AnswerVerify] {
            simulation.run(op);
        }
    };
    [Op::Set(0), Op::Drop(0)].into_iter().for_each(|op| simulation.run(op));
    for reads in 1..4 {
        let (read, _) = simulation.read.take().expect("a read");
        let at = simulation.store.epochs.at(simulation.store.top);
        let error = BrokerError::TooLarge(at, "the answer".into()).into();
        drop(locked(&mut simulation.map, |map| map.read_answered(read, Err(error))));
        for _ in 0..3 {
            verify(&mut simulation);
            assert!(simulation.is_interrupted && !simulation.map.needs_retry());
            assert!(simulation.read.is_none() && simulation.reads == reads);
        }
        [Op::Set(1), Op::Drop(0)].into_iter().for_each(|op| simulation.run(op));
        verify(&mut simulation);
    }
    serve(&mut simulation);
    assert!(simulation.reads == 4 && !simulation.is_interrupted);
    simulation.finish();
}

#[test]
fn an_entry_that_another_owner_has_set_meanwhile_is_lost() {
    let mut simulation = Simulation::new();
    simulation.run(Op::Hold(0, Wish::Always));
    serve(&mut simulation);
    for op in [Op::EndLease, Op::NoticeLease, Op::OtherHolds(0), Op::BeginLease] {
        simulation.run(op);
    }
    serve(&mut simulation);
    assert_eq!((simulation.lost, simulation.held.len()), (1, 0));
    simulation.finish();
}

#[test]
fn an_entry_of_an_earlier_life_of_the_node_is_taken_over() {
    let mut simulation = Simulation::new();
    simulation.run(Op::Hold(0, Wish::Always));
    serve(&mut simulation);
    for op in [Op::EndLeaseOnly, Op::NoticeLease, Op::BeginLease] {
        simulation.run(op);
    }
    serve(&mut simulation);
    assert_eq!(simulation.updates, 2, "without waiting for the removal");
    assert_eq!(simulation.shadow[&key(0)].owner, simulation.lease);
    simulation.finish();
}

#[test]
fn a_hold_whose_answer_is_lost_can_be_repeated() {
    let mut simulation = Simulation::new();
    serve(&mut simulation);
    for op in [Op::Hold(0, Wish::Absent), Op::ExecuteUpdate, Op::LoseUpdateAnswer, Op::Hold(0, Wish::Absent)]
    {
        simulation.run(op);
    }
    serve(&mut simulation);
    assert!(simulation.held.contains_key(&key(0)), "the entry of the first one is not in the way");
    simulation.finish();
}

#[test]
fn an_entry_whose_answer_is_lost_is_removed() {
    let mut simulation = Simulation::new();
    serve(&mut simulation);
    for op in [Op::Hold(0, Wish::Absent), Op::ExecuteUpdate, Op::LoseUpdateAnswer] {
        simulation.run(op);
    }
    serve(&mut simulation);
    simulation.run(Op::Retry);
    serve(&mut simulation);
    assert!(simulation.store.entries.is_empty());
    simulation.finish();
}

#[test]
fn a_key_that_was_compared_last_and_released_is_not_dropped_under_the_lock() {
    let mut simulation = Simulation::new();
    let limits = MapLimits { entries: 1000, ahead_bytes: 10_000, ..LIMITS };
    simulation.map = Map::new(limits, "a".to_owned());
    simulation.read = None;
    let lease = simulation.lease.clone();
    locked(&mut simulation.map, |map| map.holdings.set_node(lease));
    for n in 100..400 {
        simulation.unanswered += 1;
        let (key, caller) = (owned(n.to_string()), (owned(n.to_string()), true));
        let request = HoldRequest::Hold { value: owned("x"), condition: None, caller };
        locked(&mut simulation.map, |map| map.holdings.request(key, request));
    }
    serve(&mut simulation);
    simulation.unanswered += 1;
    // The last key of the first step that compares keys.
    let request = HoldRequest::Release { caller: (owned("355"), false) };
    locked(&mut simulation.map, |map| map.holdings.request(owned("355"), request));
    for op in [Op::EndLease, Op::Deliver(0), Op::NoticeLease] {
        simulation.run(op);
    }
    let Simulation { map, store, update, .. } = &mut simulation;
    locked(map, |map| map.holdings.set_node(Some(NodeId::new("a", 2).unwrap())));
    assert!(matches!(locked(map, MapState::next_step), Some(MapStep::Continue)));
    store.states.clear();
    let (batch, ..) = update.take().expect("the release was sent");
    let refused = Changed::new(store.epochs.at(store.top), vec![false]);
    locked(map, |map| map.update_answered(batch.number, Ok(refused)));
    assert!(!map.holdings.has(b"355"));
    locked(map, |map| map.holdings.set_node(None));
}
