//! A follower against a model of the store, with random operations.
//!
//! Events are lost, doubled and reordered. Answers are late or fail. The store trims its history,
//! and loses messages and whole topics.

use super::*;
use crate::broker::store::Epoch;
use proptest::prelude::*;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

const LIMITS: FollowerLimits = FollowerLimits {
    ring_messages: 4,
    ring_bytes: 40,
    ahead_messages: 3,
    ahead_bytes: 30,
    read_messages: 3,
    read_bytes: 30,
};

#[derive(Debug, Clone)]
enum Op {
    Publish,
    /// Publishes from the node of the follower, with the position that it has seen.
    PublishSeen,
    Trim(u64),
    /// Another program deletes a message, neither the newest nor the oldest one.
    Delete(usize),
    Rewind(u64),
    LoseTopic,
    Deliver(usize),
    DeliverTwice(usize),
    Drop(usize),
    Execute,
    ReadAnswer,
    FailRead,
    AskVerify,
    ExecuteVerify,
    AnswerVerify,
    Join(Wanted),
    /// Follows the topic without joiners.
    Watch,
    Leave(usize),
    Stall(bool),
    Retry,
    /// So many intervals pass that recent messages are forgotten.
    Quiet,
}

#[derive(Debug, Clone)]
enum Wanted {
    Now,
    Last(u64),
    /// Where a member is, or was when it left.
    Of(usize, u64),
    /// At the top of the store, which may be ahead of the node.
    Top(u64),
    Guess(u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => Just(Op::Publish),
        2 => Just(Op::PublishSeen),
        1 => (1..4_u64).prop_map(Op::Trim),
        1 => (1..6_usize).prop_map(Op::Delete),
        1 => (1..4_u64).prop_map(Op::Rewind),
        1 => Just(Op::LoseTopic),
        8 => (0..3_usize).prop_map(Op::Deliver),
        1 => (0..3_usize).prop_map(Op::DeliverTwice),
        1 => (0..3_usize).prop_map(Op::Drop),
        5 => Just(Op::Execute),
        5 => Just(Op::ReadAnswer),
        1 => Just(Op::FailRead),
        1 => Just(Op::AskVerify),
        1 => Just(Op::ExecuteVerify),
        1 => Just(Op::AnswerVerify),
        4 => wanted().prop_map(Op::Join),
        1 => Just(Op::Watch),
        1 => (0..8_usize).prop_map(Op::Leave),
        1 => any::<bool>().prop_map(Op::Stall),
        1 => Just(Op::Retry),
        1 => Just(Op::Quiet),
    ]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        Just(Wanted::Now),
        (0..9_u64).prop_map(Wanted::Last),
        ((0..8_usize), (0..3_u64)).prop_map(|(member, last)| Wanted::Of(member, last)),
        (0..3_u64).prop_map(Wanted::Top),
        ((1..5_u64), (0..20_u64)).prop_map(|(epoch, offset)| Wanted::Guess(epoch, offset)),
        Just(Wanted::Guess(1, u64::MAX)),
    ]
}

/// The store of one topic.
struct Store {
    epochs: Epochs,
    next_epoch: u64,
    top: u64,
    log: BTreeMap<u64, (Position, u64)>,
    /// Whether the next message begins an epoch.
    has_restarted: bool,
    /// All messages that were ever stored.
    published: BTreeMap<(u64, u64), u64>,
    /// The positions of messages that another program has deleted.
    deleted: BTreeSet<(u64, u64)>,
}

impl Store {
    fn new() -> Self {
        Store {
            epochs: Epochs::first(1),
            next_epoch: 2,
            top: 0,
            log: BTreeMap::new(),
            has_restarted: false,
            published: BTreeMap::new(),
            deleted: BTreeSet::new(),
        }
    }

    fn oldest(&self) -> u64 {
        let oldest = self.log.keys().next().copied().unwrap_or(self.top + 1);
        oldest.max(self.epochs.as_slice()[0].first)
    }

    fn begin_epoch(&mut self) {
        self.epochs.begin(self.next_epoch, self.top);
        self.next_epoch += 1;
        self.has_restarted = false;
    }

    fn see(&mut self, seen: Option<Position>) {
        if seen.is_some_and(|seen| self.epochs.was_rewound(seen, self.top)) {
            self.begin_epoch();
        }
    }

    fn publish(&mut self, seen: Option<Position>) -> Item<u64> {
        self.see(seen);
        if self.has_restarted {
            self.begin_epoch();
        }
        self.top += 1;
        let (position, payload) = (self.epochs.at(self.top), self.published.len() as u64);
        self.log.insert(self.top, (position, payload));
        let twice = self.published.insert((position.epoch, position.offset), payload);
        assert_eq!(twice, None, "a position is used once");
        Item { position, payload, size: 7 }
    }

    fn trim(&mut self, messages: u64) {
        for _ in 0..messages {
            self.log.pop_first();
        }
        self.epochs.trim(self.oldest());
    }

    fn delete(&mut self, at: usize) {
        let inner = self.log.len().saturating_sub(2);
        if let Some(offset) = self.log.keys().skip(1).take(inner).nth(at).copied()
            && let Some((position, _)) = self.log.remove(&offset)
        {
            self.deleted.insert((position.epoch, position.offset));
        }
    }

    fn rewind(&mut self, messages: u64) {
        for _ in 0..messages {
            let is_whole = self.deleted.is_empty() || self.log.contains_key(&self.top.saturating_sub(1));
            if is_whole && self.top >= self.epochs.newest().first && self.log.pop_last().is_some() {
                self.top -= 1;
            }
        }
        self.has_restarted = true;
    }

    fn lose(&mut self) {
        self.epochs = Epochs::first(self.next_epoch);
        self.next_epoch += 1;
        self.log.clear();
        (self.top, self.has_restarted) = (0, false);
    }

    fn read(&mut self, range: ReadRange) -> ReadAnswer<u64> {
        self.see(range.seen);
        let oldest = self.oldest();
        let from = match range.from {
            ReadFrom::After(offset) => offset.saturating_add(1),
            ReadFrom::Last(messages) => (self.top + 1).saturating_sub(messages),
        };
        let items = self.log.range(from.max(oldest)..).take(usize::try_from(range.max_messages).unwrap());
        let items =
            items.map(|(_, (position, payload))| Item { position: *position, payload: *payload, size: 7 });
        ReadAnswer { items: items.collect(), epochs: self.epochs.clone(), top: self.top, oldest }
    }

    fn can_resume(&self, start: JoinFrom) -> bool {
        let JoinFrom::After { position, .. } = start else { return true };
        self.epochs.is_valid(position, self.top) && self.oldest() <= position.offset.saturating_add(1)
    }

    fn verify(&mut self, seen: Option<Position>) -> TopicTop {
        self.see(seen);
        TopicTop::new(self.epochs.clone(), self.top)
    }
}

#[derive(Debug)]
struct Member {
    start: JoinFrom,
    /// Whether it could resume when it came.
    could_resume: bool,
    at: Option<Position>,
    is_admitted: bool,
    is_gone: bool,
}

struct Simulation {
    store: Store,
    follower: Follower<u64>,
    members: Vec<Member>,
    events: Vec<Item<u64>>,
    read: Option<(u64, ReadRange)>,
    executed: Option<(u64, ReadAnswer<u64>)>,
    verify: Option<Option<Position>>,
    verified: Option<(Option<Position>, TopicTop)>,
    is_stalled: bool,
    is_watched: bool,
    /// The position of the members, as far as steps were carried out.
    position: Option<Position>,
    reads: usize,
}

impl Simulation {
    fn new() -> Self {
        Simulation {
            store: Store::new(),
            follower: Follower::new(LIMITS),
            members: Vec::new(),
            events: Vec::new(),
            read: None,
            executed: None,
            verify: None,
            verified: None,
            is_stalled: false,
            is_watched: false,
            position: None,
            reads: 0,
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Publish => {
                let item = self.store.publish(None);
                self.events.push(item);
            }
            Op::PublishSeen => {
                let item = self.store.publish(self.follower.position());
                self.events.push(item);
            }
            Op::Trim(messages) => self.store.trim(messages),
            Op::Delete(at) => self.store.delete(at),
            Op::Rewind(messages) => self.store.rewind(messages),
            Op::LoseTopic => self.store.lose(),
            Op::Deliver(at) if at < self.events.len() => self.follower.message(self.events.remove(at)),
            Op::DeliverTwice(at) if at < self.events.len() => {
                self.follower.message(self.events[at].clone());
            }
            Op::Drop(at) if at < self.events.len() => drop(self.events.remove(at)),
            Op::Execute if self.executed.is_none() => {
                self.executed = self.read.take().map(|(read, range)| (read, self.store.read(range)));
            }
            Op::ReadAnswer => {
                if let Some((read, answer)) = self.executed.take() {
                    self.follower.answered(read, Ok(answer));
                }
            }
            Op::FailRead => {
                if let Some((read, _)) = self.read.take() {
                    self.follower.answered(read, Err(Error::Cancelled));
                }
            }
            Op::AskVerify => self.verify = Some(self.follower.position()),
            Op::ExecuteVerify => {
                self.verified = self.verify.take().map(|seen| (seen, self.store.verify(seen)));
            }
            Op::AnswerVerify => {
                if let Some((seen, answer)) = self.verified.take() {
                    self.follower.verified(seen, answer);
                }
            }
            Op::Join(wanted) => self.join(&wanted),
            Op::Watch => {
                self.is_watched = true;
                self.follower.watch();
            }
            Op::Leave(member) => {
                if let Some(member) = self.members.get_mut(member) {
                    member.is_gone = true;
                }
                self.follower.leave(member as u64);
            }
            Op::Stall(on) => self.is_stalled = on,
            Op::Retry => self.follower.retry(),
            Op::Quiet => (0..3).for_each(|_| drop(self.follower.forget_old_messages())),
            _ => {}
        }
        self.carry_out();
    }

    fn join(&mut self, wanted: &Wanted) {
        let start = match wanted {
            Wanted::Now => JoinFrom::Now,
            Wanted::Last(messages) => JoinFrom::Last(*messages),
            Wanted::Of(member, or_last) => match self.members.get(*member).and_then(|member| member.at) {
                Some(position) => JoinFrom::After { position, or_last: *or_last },
                None => JoinFrom::Now,
            },
            Wanted::Top(or_last) => {
                JoinFrom::After { position: self.store.epochs.at(self.store.top), or_last: *or_last }
            }
            Wanted::Guess(epoch, offset) => {
                JoinFrom::After { position: Position::new(*epoch, *offset), or_last: 0 }
            }
        };
        let could_resume = self.store.can_resume(start);
        let member = Member { start, could_resume, at: None, is_admitted: false, is_gone: false };
        self.follower.join(self.members.len() as u64, start);
        self.members.push(member);
    }

    fn carry_out(&mut self) {
        while let Some(step) = self.follower.next_step() {
            match step {
                step @ (FollowerStep::Broadcast(_) | FollowerStep::Missed(_)) if self.is_stalled => {
                    self.follower.put_back(step);
                    return;
                }
                FollowerStep::Broadcast(item) => {
                    let members =
                        self.members.iter_mut().filter(|member| member.is_admitted && !member.is_gone);
                    members.for_each(|member| receive(&self.store, member, &item));
                    self.position = Some(item.position);
                }
                FollowerStep::Missed(missed) => {
                    let members =
                        self.members.iter_mut().filter(|member| member.is_admitted && !member.is_gone);
                    members.for_each(|member| miss(&self.store, member, missed));
                    self.position = Some(missed.next);
                }
                FollowerStep::EpochChanged(_) => {}
                FollowerStep::Greet(joiner, joined) => self.greet(joiner, joined),
                FollowerStep::Write(joiner, item) => {
                    let member = &mut self.members[joiner as usize];
                    assert!(!member.is_admitted);
                    receive(&self.store, member, &item);
                }
                FollowerStep::WriteMissed(joiner, missed) => {
                    miss(&self.store, &mut self.members[joiner as usize], missed);
                }
                FollowerStep::Admit(joiner) => {
                    let member = &mut self.members[joiner as usize];
                    assert!(!member.is_admitted);
                    let at = member.at.expect("it was greeted");
                    if let Some(position) = self.position {
                        assert_eq!(at.offset, position.offset, "it has everything that members have");
                    }
                    self.position.get_or_insert(at);
                    member.is_admitted = true;
                }
                FollowerStep::Fail(joiner, _) => self.members[joiner as usize].is_gone = true,
                FollowerStep::Read(read, range) => {
                    assert!(self.read.is_none() && self.executed.is_none(), "one read at a time");
                    self.reads += 1;
                    self.read = Some((read, range));
                }
            }
        }
    }

    fn greet(&mut self, joiner: JoinerId, joined: Joined) {
        let member = &mut self.members[joiner as usize];
        assert_eq!(member.at, None);
        member.at = Some(joined.position);
        match member.start {
            JoinFrom::Now | JoinFrom::Last(_) => assert!(joined.recovered),
            JoinFrom::After { position, .. } => {
                assert!(!joined.recovered || joined.position == position);
                if member.could_resume && self.store.can_resume(member.start) {
                    assert!(joined.recovered, "{position} can be resumed");
                }
            }
        }
    }

    /// Everything arrives that still can arrive. Then all members have everything.
    fn finish(&mut self) {
        self.is_stalled = false;
        self.events.clear();
        self.carry_out();
        for round in 0.. {
            assert!(round < 200, "the follower comes to rest");
            self.run(Op::AnswerVerify);
            self.run(Op::AskVerify);
            self.run(Op::ExecuteVerify);
            self.run(Op::AnswerVerify);
            while self.read.is_some() || self.executed.is_some() {
                self.run(Op::ReadAnswer);
                self.run(Op::Execute);
                self.run(Op::ReadAnswer);
                assert!(self.reads < 2000, "the follower does not read forever");
            }
            let Store { epochs, top, .. } = &self.store;
            let is_done = match self.follower.position() {
                Some(at) => epochs.is_valid(at, *top) && at.offset == *top,
                None => !self.is_watched,
            };
            // Without a position, the verification does not lead to a read.
            if self.follower.position().is_none() && self.follower.needs_retry() {
                self.run(Op::Retry);
            }
            if is_done && self.follower.joiners() == 0 {
                break;
            }
        }
        for member in self.members.iter().filter(|member| !member.is_gone) {
            assert!(member.is_admitted, "{member:?}");
            let at = member.at.expect("it was greeted");
            assert_eq!(at.offset, self.store.top);
            assert!(
                self.store.epochs.is_valid(at, self.store.top),
                "{at} is not valid in {:?}",
                self.store.epochs
            );
        }
    }
}

fn receive(store: &Store, member: &mut Member, item: &Item<u64>) {
    let at = member.at.expect("it was greeted");
    assert_eq!(item.position.offset, at.offset + 1, "{member:?} receives {item:?}");
    assert_eq!(store.published[&(item.position.epoch, item.position.offset)], item.payload);
    member.at = Some(item.position);
}

/// A member receives a notice of a loss only after a loss.
fn miss(store: &Store, member: &mut Member, missed: Missed) {
    assert_eq!(member.at.map(|at| at.offset), Some(missed.seen.offset));
    match missed.cause {
        MissedCause::Rewound => {
            assert!(!store.epochs.is_valid(missed.seen, store.top), "{missed:?} {:?}", store.epochs);
        }
        MissedCause::Trimmed => {
            assert!(
                store.epochs.as_slice().len() > 1
                    || !store.deleted.is_empty()
                    || store.oldest() > missed.seen.offset + 1
                    || store.top == 0
                    || !store.epochs.is_valid(missed.seen, store.top)
            );
        }
    }
    member.at = Some(missed.next);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn members_receive_every_message_in_order_or_are_told(ops in prop::collection::vec(op(), 1..120)) {
        let mut simulation = Simulation::new();
        ops.into_iter().for_each(|op| simulation.run(op));
        simulation.finish();
    }
}

#[test]
fn one_read_serves_all_joiners() {
    let mut simulation = Simulation::new();
    (0..3).for_each(|_| simulation.run(Op::Publish));
    simulation.events.clear();
    for offset in 0..1000 {
        simulation.run(Op::Join(Wanted::Guess(1, offset % 3)));
    }
    assert_eq!(simulation.reads, 1);
    simulation.run(Op::Execute);
    simulation.run(Op::ReadAnswer);
    assert_eq!((simulation.reads, simulation.follower.joiners()), (1, 0));
    simulation.run(Op::Join(Wanted::Guess(1, 1)));
    assert_eq!((simulation.reads, simulation.follower.joiners()), (1, 0), "the ring serves it");
    simulation.finish();
}

#[test]
fn the_work_grows_with_the_number_of_joiners() {
    let mut simulation = Simulation::new();
    (0..30).for_each(|_| simulation.run(Op::Publish));
    simulation.events.clear();
    simulation.run(Op::Join(Wanted::Now));
    simulation.run(Op::Execute);
    simulation.run(Op::ReadAnswer);
    let joiners = 2000;
    // The read that the first one needs begins before the others come.
    (0..joiners).for_each(|_| simulation.run(Op::Join(Wanted::Last(2))));
    simulation.run(Op::Leave(5));
    for _ in 0..2 {
        simulation.run(Op::Execute);
        simulation.run(Op::ReadAnswer);
    }
    let (served, waiting) = (simulation.follower.served, simulation.follower.joiners());
    assert_eq!(waiting, 0);
    assert!(served <= 4 * joiners, "{served} times for {joiners} joiners");
}

#[test]
fn a_message_that_was_stored_during_the_first_read_is_read_afterwards() {
    let mut simulation = Simulation::new();
    simulation.run(Op::Join(Wanted::Now));
    simulation.run(Op::Execute);
    simulation.run(Op::Publish);
    simulation.events.clear();
    for op in [Op::AskVerify, Op::ExecuteVerify, Op::AnswerVerify] {
        simulation.run(op);
    }
    for op in [Op::ReadAnswer, Op::Execute, Op::ReadAnswer] {
        simulation.run(op);
    }
    assert_eq!(simulation.follower.position(), Some(Position::new(1, 1)));
    assert_eq!(simulation.members[0].at, Some(Position::new(1, 1)));
    assert_eq!(simulation.reads, 2);
}

#[test]
fn an_epoch_without_messages_is_reported_once() {
    let mut follower = Follower::<()>::new(LIMITS);
    let epochs = |ids: &[(u64, u64)]| {
        Epochs::new(ids.iter().map(|(id, first)| Epoch::new(*id, *first)).collect()).unwrap()
    };
    let answer = |epochs| Ok(ReadAnswer { epochs, top: 5, oldest: 6, items: Vec::new() });
    follower.join(0, JoinFrom::Now);
    follower.answered(0, answer(epochs(&[(1, 1)])));
    while follower.next_step().is_some() {}
    follower.epoch_began(Position::new(2, 5));
    follower.answered(1, answer(epochs(&[(1, 1), (2, 6)])));
    let position = Position::new(2, 5);
    assert_eq!(follower.position(), Some(position));
    follower.verified(Some(position), TopicTop::new(epochs(&[(1, 1), (2, 6)]), 5));
    let steps = std::iter::from_fn(|| follower.next_step());
    assert_eq!(steps.filter(|step| matches!(step, FollowerStep::EpochChanged(_))).count(), 1);
}

/// Counts how many have been dropped.
#[derive(Debug)]
struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn no_message_is_dropped_by_an_input() {
    let drops = Rc::new(Cell::new(0));
    let mut follower = Follower::new(LIMITS);
    let item = |epoch, offset| {
        let payload = Rc::new(Counted(drops.clone()));
        Item { position: Position::new(epoch, offset), payload, size: 7 }
    };
    let answer = |epoch, offsets: std::ops::Range<u64>, top| {
        let items = offsets.map(|offset| item(epoch, offset)).collect();
        Ok(ReadAnswer { epochs: Epochs::first(epoch), top, oldest: 1, items })
    };
    type Input<'a> = Box<dyn FnOnce(&mut Follower<Rc<Counted>>) + 'a>;
    let inputs: Vec<(Input, &str)> = vec![
        (Box::new(|it| it.join(0, JoinFrom::Now)), "a read"),
        (Box::new(|it| it.answered(0, answer(1, 1..1, 0))), "the answer"),
        (Box::new(|it| (1..=20).for_each(|n| it.message(item(1, n)))), "more than the ring holds"),
        (Box::new(|it| it.message(item(1, 3))), "a message again"),
        (Box::new(|it| it.message(item(1, 30))), "a gap, and a read"),
        (Box::new(|it| (31..=35).for_each(|n| it.message(item(1, n)))), "more than may be ahead"),
        (Box::new(|it| it.message(item(1, 31))), "a message ahead again"),
        (Box::new(|it| it.join(1, JoinFrom::Last(20))), "a joiner"),
        (Box::new(|it| it.answered(1, answer(1, 21..30, 29))), "the answer"),
        (Box::new(|it| it.answered(1, answer(1, 21..30, 29))), "a late answer"),
        (Box::new(|it| it.answered(2, answer(1, 10..13, 32))), "the answer for the joiner"),
        (Box::new(|it| assert!(it.leave(1))), "the joiner leaves"),
        (Box::new(|it| it.message(item(2, 1))), "another epoch"),
        (Box::new(|it| it.answered(3, answer(2, 1..3, 2))), "the topic was lost"),
    ];
    for (input, name) in inputs {
        let before = drops.get();
        input(&mut follower);
        let steps: Vec<_> = std::iter::from_fn(|| follower.next_step()).collect();
        let removed = follower.take_removed();
        assert_eq!(drops.get(), before, "{name}");
        drop((steps, removed));
    }
    assert!(drops.get() > 30, "{}", drops.get());
}

#[test]
fn the_messages_that_are_kept_are_bounded() {
    let mut follower = Follower::new(LIMITS);
    follower.join(0, JoinFrom::Now);
    let message = |offset| Item { position: Position::new(1, offset), payload: (), size: 7 };
    (100..200).for_each(|offset| follower.message(message(offset)));
    let Some(FollowerStep::Read(read, _)) = follower.next_step() else { panic!("a read") };
    let answer = ReadAnswer { epochs: Epochs::first(1), top: 0, oldest: 1, items: Vec::new() };
    follower.answered(read, Ok(answer));
    (1..2000).for_each(|offset| follower.message(message(offset)));
    assert!(follower.ring_bytes() <= LIMITS.ring_bytes);
    assert!(follower.steps.len() <= MAX_STEPS + 10, "{}", follower.steps.len());
    let forgotten = (0..3).map(|_| follower.forget_old_messages().len());
    assert_eq!(forgotten.collect::<Vec<_>>(), [0, 0, 4]);
    assert_eq!(follower.ring_bytes(), 0);
}

#[test]
fn the_next_message_is_delivered_even_if_it_is_larger_than_the_limit() {
    let mut follower = Follower::new(LIMITS);
    follower.join(0, JoinFrom::Now);
    let Some(FollowerStep::Read(read, _)) = follower.next_step() else { panic!("a read") };
    let answer = ReadAnswer { epochs: Epochs::first(1), top: 0, oldest: 1, items: Vec::new() };
    follower.answered(read, Ok(answer));
    while follower.next_step().is_some() {}
    let position = Position::new(1, 1);
    follower.message(Item { position, payload: (), size: LIMITS.ahead_bytes + 1 });
    let steps: Vec<_> = std::iter::from_fn(|| follower.next_step()).collect();
    assert!(matches!(steps[..], [FollowerStep::Broadcast(..), ..]), "{steps:?}");
}

#[test]
fn an_epoch_that_begins_before_the_position_is_read_at_once() {
    let mut follower = Follower::new(LIMITS);
    follower.join(0, JoinFrom::Now);
    let Some(FollowerStep::Read(read, _)) = follower.next_step() else { panic!("a read") };
    let answer = ReadAnswer { epochs: Epochs::first(1), top: 1000, oldest: 1001, items: Vec::new() };
    follower.answered(read, Ok(answer));
    while follower.next_step().is_some() {}
    // The topic is lost, and begins anew at the offset 1.
    follower.message(Item { position: Position::new(2, 1), payload: (), size: 7 });
    let Some(FollowerStep::Read(read, range)) = follower.next_step() else { panic!("a read") };
    assert_eq!(range.seen, Some(Position::new(1, 1000)));
    let answer = ReadAnswer { epochs: Epochs::first(2), top: 1, oldest: 1, items: Vec::new() };
    follower.answered(read, Ok(answer));
    let Some(FollowerStep::Missed(missed)) = follower.next_step() else { panic!("members are told") };
    assert_eq!((missed.cause, missed.next), (MissedCause::Rewound, Position::new(2, 0)));
    // That read was for messages behind the old position, so it says nothing about this one.
    let Some(FollowerStep::Read(_, range)) = follower.next_step() else { panic!("another read") };
    assert_eq!((range.from, range.seen), (ReadFrom::After(0), Some(missed.next)));
}

/// Answers the reads of a topic with 10 messages, of which only `kept` are in the store. Returns
/// the steps and the number of reads.
fn with_gaps(follower: &mut Follower<()>, kept: &[u64]) -> (Vec<String>, usize) {
    let (mut steps, mut reads) = (Vec::new(), 0);
    while let Some(step) = follower.next_step() {
        match step {
            FollowerStep::Read(read, range) => {
                reads += 1;
                assert!(reads < 20, "it is read in a loop");
                let after = match range.from {
                    ReadFrom::After(offset) => offset,
                    ReadFrom::Last(messages) => 10 - messages,
                };
                let items = kept.iter().filter(|offset| **offset > after).take(3);
                let item = |offset: &u64| Item { position: Position::new(1, *offset), payload: (), size: 7 };
                let items = items.map(item).collect();
                let answer = ReadAnswer { epochs: Epochs::first(1), top: 10, oldest: 1, items };
                follower.answered(read, Ok(answer));
            }
            FollowerStep::Greet(_, joined) => steps.push(format!("greet {}", joined.position.offset)),
            FollowerStep::Write(_, item) => steps.push(item.position.offset.to_string()),
            FollowerStep::Broadcast(item) => steps.push(format!("all {}", item.position.offset)),
            FollowerStep::WriteMissed(_, missed) => steps.push(format!("to {}", missed.next.offset)),
            FollowerStep::Missed(missed) => steps.push(format!("all to {}", missed.next.offset)),
            FollowerStep::Admit(_) => steps.push("admit".to_owned()),
            other => panic!("{other:?}"),
        }
    }
    (steps, reads)
}

#[test]
fn a_joiner_is_told_of_messages_that_were_deleted_from_the_history() {
    for (kept, expected) in [
        (&[1, 7, 8, 9, 10][..], &["greet 5", "to 6", "7", "8", "9", "10", "admit"][..]),
        (&[1, 6, 8, 10], &["greet 5", "6", "to 7", "8", "to 9", "10", "admit"]),
        (&[1, 6, 7], &["greet 5", "6", "7", "to 10", "admit"]),
        (&[1], &["greet 5", "to 10", "admit"]),
    ] {
        let mut follower = Follower::new(LIMITS);
        follower.join(0, JoinFrom::After { position: Position::new(1, 5), or_last: 0 });
        let (steps, reads) = with_gaps(&mut follower, kept);
        assert_eq!(steps, expected);
        assert!(reads <= 4, "{reads} reads");
        assert_eq!((follower.joiners(), follower.needs_retry()), (0, false));
    }
}

#[test]
fn members_are_told_of_messages_that_were_deleted_from_the_history() {
    for (kept, expected) in [
        (&[1, 7, 8, 9, 10][..], &["all to 6", "all 7", "all 8", "all 9", "all 10"][..]),
        (&[1, 6, 8, 10], &["all 6", "all to 7", "all 8", "all to 9", "all 10"]),
    ] {
        let mut follower = Follower::new(LIMITS);
        follower.join(0, JoinFrom::Now);
        let Some(FollowerStep::Read(read, _)) = follower.next_step() else { panic!("a read") };
        let answer = ReadAnswer { epochs: Epochs::first(1), top: 5, oldest: 1, items: Vec::new() };
        follower.answered(read, Ok(answer));
        while follower.next_step().is_some() {}
        follower.verified(Some(Position::new(1, 5)), TopicTop::new(Epochs::first(1), 10));
        assert_eq!(with_gaps(&mut follower, kept).0, expected);
        assert_eq!(follower.position(), Some(Position::new(1, 10)));
    }
}

/// One read may serve a joiner shortly before the first one, whose messages it does not reach.
#[test]
fn an_answer_that_brings_a_later_joiner_forward_has_not_failed() {
    const TOP: u64 = 30;
    let limits = FollowerLimits { read_messages: 20, read_bytes: 30, ..LIMITS };
    let mut follower: Follower<()> = Follower::new(limits);
    follower.join(0, JoinFrom::After { position: Position::new(1, 12), or_last: 0 });
    follower.join(1, JoinFrom::After { position: Position::new(1, 3), or_last: 0 });
    let mut admitted = 0;
    for _ in 0..100 {
        match follower.next_step() {
            Some(FollowerStep::Read(read, range)) => {
                let ReadFrom::After(after) = range.from else { panic!("{range:?}") };
                // Three messages fit into the bytes of a read.
                let items = (after + 1..=TOP).take(3);
                let item = |offset| Item { position: Position::new(1, offset), payload: (), size: 10 };
                let items = items.map(item).collect();
                follower
                    .answered(read, Ok(ReadAnswer { epochs: Epochs::first(1), top: TOP, oldest: 1, items }));
                assert!(!follower.needs_retry(), "behind {after}");
            }
            Some(FollowerStep::Admit(_)) => admitted += 1,
            Some(_) => {}
            None => break,
        }
    }
    assert_eq!(admitted, 2);
}
