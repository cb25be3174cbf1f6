//! A partition's watch with followers, against a model of the store.
//!
//! Events are lost, deliveries are interrupted, questions and reads fail or are late. Members have
//! all messages after three intervals in which nothing fails, because the watch asks by itself.

use super::partition_watch::{Ask, PartitionWatch};
use crate::broker::{
    follower::{Follower, FollowerLimits, FollowerStep, Item, JoinFrom, ReadAnswer},
    store::{Epochs, Position, ReadFrom, ReadRange, Sequence, TopicTop},
};
use crate::error::Error;
use proptest::prelude::*;
use std::collections::VecDeque;

const LIMITS: FollowerLimits = FollowerLimits {
    ring_messages: 4,
    ring_bytes: 40,
    ahead_messages: 3,
    ahead_bytes: 30,
    read_messages: 3,
    read_bytes: 30,
};

const TOPICS: usize = 3;

#[derive(Debug, Clone)]
enum Op {
    Publish(usize),
    Deliver,
    Lose,
    Join(usize),
    Tick,
    ExecuteQuestion,
    AnswerQuestion,
    FailQuestion,
    ExecuteRead(usize),
    AnswerRead(usize),
    FailRead(usize),
    Interrupt,
    Follow,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..TOPICS).prop_map(Op::Publish),
        5 => Just(Op::Deliver),
        2 => Just(Op::Lose),
        3 => (0..TOPICS).prop_map(Op::Join),
        2 => Just(Op::Tick),
        4 => Just(Op::ExecuteQuestion),
        4 => Just(Op::AnswerQuestion),
        2 => Just(Op::FailQuestion),
        4 => (0..TOPICS).prop_map(Op::ExecuteRead),
        4 => (0..TOPICS).prop_map(Op::AnswerRead),
        1 => (0..TOPICS).prop_map(Op::FailRead),
        1 => Just(Op::Interrupt),
        3 => Just(Op::Follow),
    ]
}

struct Topic {
    /// The top in the store.
    top: u64,
    follower: Follower<()>,
    joiners: u64,
    read: Option<(u64, ReadRange)>,
    executed: Option<(u64, ReadAnswer<()>)>,
}

/// The topics of a question, with the positions of the node.
type Seen = Vec<(usize, Option<Position>)>;

struct Model {
    topics: [Topic; TOPICS],
    sequence: u64,
    watch: PartitionWatch,
    is_live: bool,
    events: VecDeque<(u64, usize, u64)>,
    question: Option<(u64, Ask, Seen)>,
    executed: Option<(u64, Ask, Seen, Sequence, [u64; TOPICS])>,
}

fn message(offset: u64) -> Item<()> {
    Item { position: Position::new(1, offset), payload: (), size: 7 }
}

impl Model {
    fn new() -> Self {
        let topic =
            |_| Topic { top: 0, follower: Follower::new(LIMITS), joiners: 0, read: None, executed: None };
        Model {
            topics: std::array::from_fn(topic),
            sequence: 0,
            watch: PartitionWatch::default(),
            is_live: false,
            events: VecDeque::new(),
            question: None,
            executed: None,
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Publish(topic) => {
                self.sequence += 1;
                self.topics[topic].top += 1;
                if self.is_live {
                    self.events.push_back((self.sequence, topic, self.topics[topic].top));
                }
            }
            Op::Deliver => {
                if let Some((sequence, topic, offset)) = self.events.pop_front() {
                    self.watch.event(Sequence::new(1, sequence));
                    if self.topics[topic].joiners > 0 {
                        self.topics[topic].follower.message(message(offset));
                    }
                }
            }
            Op::Lose => drop(self.events.pop_front()),
            Op::Join(topic) => {
                let topic = &mut self.topics[topic];
                if topic.joiners == 0 {
                    self.watch.topic_added();
                }
                topic.follower.join(topic.joiners, JoinFrom::Now);
                topic.joiners += 1;
            }
            Op::Tick => {
                self.topics.iter_mut().for_each(|topic| topic.follower.retry());
                self.watch.tick(5);
            }
            Op::ExecuteQuestion => {
                if let Some((number, ask, seen)) = self.question.take() {
                    let tops = std::array::from_fn(|topic| self.topics[topic].top);
                    self.executed = Some((number, ask, seen, Sequence::new(1, self.sequence), tops));
                }
            }
            Op::AnswerQuestion => {
                if let Some((number, _, seen, sequence, tops)) = self.executed.take() {
                    for (topic, seen) in seen {
                        let top = TopicTop::new(Epochs::first(1), tops[topic]);
                        self.topics[topic].follower.verified(seen, top);
                    }
                    self.watch.answered(number, sequence);
                }
            }
            Op::FailQuestion => {
                if let Some((number, ..)) = self.question.take() {
                    self.watch.failed(number);
                }
            }
            Op::ExecuteRead(topic) => self.topics[topic].execute_read(),
            Op::AnswerRead(topic) => {
                let topic = &mut self.topics[topic];
                if let Some((read, answer)) = topic.executed.take() {
                    topic.follower.answered(read, Ok(answer));
                }
            }
            Op::FailRead(topic) => {
                let topic = &mut self.topics[topic];
                if let Some((read, _)) = topic.read.take() {
                    topic.follower.answered(read, Err(Error::Cancelled));
                }
            }
            Op::Interrupt => {
                self.watch.interrupted();
                self.events.clear();
                self.is_live = false;
            }
            Op::Follow => {
                self.watch.following();
                self.is_live = true;
            }
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for topic in &mut self.topics {
            while let Some(step) = topic.follower.next_step() {
                if let FollowerStep::Read(read, range) = step {
                    topic.read = Some((read, range));
                }
            }
        }
        if let Some((number, ask)) = self.watch.next_ask() {
            let followed = self.topics.iter().enumerate().filter(|(_, topic)| topic.joiners > 0);
            let seen = followed.map(|(number, topic)| (number, topic.follower.position()));
            let seen = if ask == Ask::Topics { seen.collect() } else { Vec::new() };
            (self.question, self.executed) = (Some((number, ask, seen)), None);
        }
    }

    fn finish(&mut self) {
        self.events.clear();
        if !self.is_live {
            self.run(&Op::Follow);
        }
        for _ in 0..3 {
            self.run(&Op::Tick);
            while self.question.is_some() || self.executed.is_some() || self.reads() {
                for topic in 0..TOPICS {
                    self.run(&Op::AnswerRead(topic));
                    self.run(&Op::ExecuteRead(topic));
                }
                self.run(&Op::AnswerQuestion);
                self.run(&Op::ExecuteQuestion);
            }
        }
        for topic in &self.topics {
            let position = topic.follower.position();
            assert!(position.is_none_or(|at| at.offset == topic.top), "{position:?} of {}", topic.top);
        }
    }

    fn reads(&self) -> bool {
        self.topics.iter().any(|topic| topic.read.is_some() || topic.executed.is_some())
    }
}

impl Topic {
    fn execute_read(&mut self) {
        let Some((read, range)) = self.read.take() else { return };
        let from = match range.from {
            ReadFrom::After(offset) => offset,
            ReadFrom::Last(messages) => self.top.saturating_sub(messages),
        };
        let items = (from + 1..=self.top).take(3).map(message).collect();
        self.executed =
            Some((read, ReadAnswer { epochs: Epochs::first(1), top: self.top, oldest: 1, items }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn members_have_everything_after_some_intervals(ops in prop::collection::vec(op(), 1..60)) {
        let mut model = Model::new();
        ops.iter().for_each(|op| model.run(op));
        model.finish();
    }
}
