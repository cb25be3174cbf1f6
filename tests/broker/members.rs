//! Nodes on one broker in memory, and channels as members.

use crate::{
    faulty::Faulty,
    support::{
        journal::Journal,
        loops::{manual_group, the_loop},
        servers::Quiet,
        wait::{done, wait_until_or},
    },
};
use bytes::Bytes;
use netwheel::{
    ChannelId, EventLoopGroup, Pipeline, Result,
    broker::{
        Joined, MemoryBroker, Missed, MissedCause, Position, Subscription, Topic, TopicBuilder, TopicFormat,
        TopicName, Topics, store::Partitions,
    },
    codec::Line,
    testing::{EmbeddedChannel, ManualClock},
};
use std::time::Duration;

/// Lines of text, with their offsets.
pub(crate) struct Numbered;

impl TopicFormat<Bytes> for Numbered {
    fn encode(&self, message: &Bytes) -> Result<Bytes> {
        if &message[..] == b"bad" { Err("a bad message".into()) } else { Ok(message.clone()) }
    }

    fn decode(&self, payload: Bytes, position: Option<Position>) -> Result<Bytes> {
        let text = String::from_utf8_lossy(&payload);
        match &payload[..] {
            b"poison" => return Err("poison".into()),
            b"panic" => panic!("on purpose"),
            _ => {}
        }
        Ok(position.map_or(format!("- {text}"), |position| format!("{} {text}", position.offset)).into())
    }

    fn missed(&self, missed: &Missed) -> Option<Bytes> {
        let cause = match missed.cause {
            MissedCause::Rewound => "rewound",
            _ => "trimmed",
        };
        Some(format!("{cause} {} to {}", missed.seen.offset, missed.next.offset).into())
    }
}

/// One node, with faults.
pub(crate) struct TestNode {
    pub(crate) topics: Topics,
    pub(crate) broker: Faulty,
    pub(crate) lobby: Topic<Bytes>,
    /// The events of the lobby.
    pub(crate) events: Journal<String>,
}

/// Several nodes, on a manual clock and one event loop.
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<TestNode>,
    pub(crate) store: MemoryBroker,
    pub(crate) clock: ManualClock,
    pub(crate) group: EventLoopGroup,
}

impl Nodes {
    pub(crate) fn new(number: usize) -> Self {
        Self::with(number, |lobby| lobby)
    }

    /// Creates nodes with settings of the lobby.
    pub(crate) fn with(number: usize, settings: impl Fn(TopicBuilder<Bytes>) -> TopicBuilder<Bytes>) -> Self {
        let (group, clock) = manual_group();
        let store = MemoryBroker::new();
        let nodes = ["a", "b", "c"].into_iter().take(number).map(|name| {
            let broker = Faulty::new(&store, the_loop(&group));
            let topics = Topics::builder(&group, broker.clone()).node(name).build().unwrap();
            let events = Journal::new();
            let lobby = topics.topic("lobby", Numbered).on_event({
                let events: Journal<String> = events.clone();
                move |event| events.push(format!("{event:?}"))
            });
            let lobby = settings(lobby).open().unwrap();
            TestNode { topics, broker, lobby, events }
        });
        Nodes { nodes: nodes.collect(), store, clock, group }
    }

    /// Lets the periodic tasks run that are due after some time.
    pub(crate) fn advance(&self, by: Duration) {
        crate::support::loops::advance(the_loop(&self.group), &self.clock, by);
    }
}

impl TestNode {
    /// Publishes numbers.
    pub(crate) fn publish_numbers(&self, numbers: std::ops::RangeInclusive<usize>) {
        for n in numbers {
            self.publish(&n.to_string());
        }
    }

    pub(crate) fn publish(&self, text: &str) -> Position {
        let accepted = done(self.lobby.publish(Bytes::from(text.to_owned()))).expect("it is stored");
        accepted.position.expect("it has a position")
    }
}

/// Returns the name of another topic in the partition of the lobby.
pub(crate) fn neighbour() -> String {
    let partitions = Partitions::default();
    let of = |name: &str| partitions.of(&TopicName::new(name).unwrap());
    (0..).map(|n| format!("room-{n}")).find(|name| of(name) == of("lobby")).unwrap()
}

/// A member of the lobby.
pub(crate) struct Member {
    channel: EmbeddedChannel<Bytes>,
    lines: Vec<String>,
}

impl Member {
    pub(crate) fn new() -> Self {
        Member {
            channel: EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Quiet)),
            lines: Vec::new(),
        }
    }

    /// Joins the lobby of a node, from now on.
    pub(crate) fn join(node: &TestNode) -> Self {
        Self::subscribe(node, |subscription| subscription).0
    }

    /// Joins the lobby of a node behind a position.
    pub(crate) fn resume(node: &TestNode, position: Position) -> (Self, Joined) {
        Self::subscribe(node, |subscription| subscription.after(position))
    }

    pub(crate) fn subscribe(
        node: &TestNode,
        start: impl FnOnce(Subscription<Bytes>) -> Subscription<Bytes>,
    ) -> (Self, Joined) {
        let mut member = Member::new();
        let subscription = start(Subscription::new(member.channel.channel()));
        let joined = done(node.lobby.subscribe(subscription)).expect("it joins");
        (member, joined)
    }

    pub(crate) fn id(&mut self) -> ChannelId {
        self.channel.channel().id()
    }

    pub(crate) fn channel(&mut self) -> netwheel::Channel<Bytes> {
        self.channel.channel()
    }

    pub(crate) fn close(&mut self) {
        self.channel.close();
    }

    /// Returns the lines that have arrived by now.
    pub(crate) fn lines(&mut self) -> &[String] {
        self.channel.run_pending();
        let output = self.channel.read_outbound();
        self.lines.extend(String::from_utf8_lossy(&output).lines().map(str::to_owned));
        &self.lines
    }

    /// Waits until these lines have arrived, and no others.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &[&str]) {
        self.lines();
        let found = std::cell::RefCell::new(Vec::new());
        wait_until_or(
            || format!("{:?} is {expected:?}", found.borrow()),
            || {
                let lines = self.lines().to_vec();
                let is_there = lines.len() >= expected.len();
                *found.borrow_mut() = lines;
                is_there
            },
        );
        assert_eq!(self.lines(), expected);
    }
}
