//! A room with members on three nodes over a simulated Redis, amid kills, power failures and cuts.
//!
//! Clients move from node to node, with the position of their last message. Each of them receives
//! the messages in the order of their offsets, without a gap and none twice, or a notice of the
//! missing ones. In the end it has the messages of the store, and with `appendfsync always` these
//! are all messages that were acknowledged.

mod client;

use super::simulated::{faults, redis, stored_twice, texts};
use crate::support::servers::Quiet;
use client::{Client, greeting, notice};
use netwheel::{
    Completion, EventLoopGroup, Pipeline, Result,
    broker::{
        HistoryLimits, MessageId, Missed, NewMessage, Position, Receipt, RedisBroker, Subscription, Topic,
        TopicFormat, TopicName, Topics,
        store::{History, ReadFrom, ReadRange},
    },
    bytes::Bytes,
    codec::Line,
    redis::RedisClient,
    testing::{
        EmbeddedChannel,
        redis::Persistence,
        simulation::{Exploration, Explored, Failure, Journal, Simulation, chance, sleep, sometimes},
    },
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(100);

const NODES: [(&str, &str); 3] = [("a", "10.0.0.2"), ("b", "10.0.0.3"), ("c", "10.0.0.4")];
const CLIENTS: usize = 4;

/// The messages that the store keeps.
const KEPT: u64 = 8;

struct Lines;

impl TopicFormat<Bytes> for Lines {
    fn encode(&self, message: &Bytes) -> Result<Bytes> {
        Ok(message.clone())
    }

    fn decode(&self, payload: Bytes, position: Option<Position>) -> Result<Bytes> {
        let Position { epoch, offset, .. } = position.ok_or("a message without a position")?;
        let text = String::from_utf8_lossy(&payload);
        Ok(format!("{} {epoch} {offset} {text}", client::MESSAGE).into())
    }

    fn missed(&self, missed: &Missed) -> Option<Bytes> {
        Some(notice(missed).into())
    }
}

/// What the programs record.
#[derive(Clone)]
struct Records {
    clients: Arc<Mutex<Vec<Client>>>,
    stored: Journal<(Position, String)>,
    violations: Journal<String>,
    /// The number of lives of the nodes, for the names of messages.
    lives: Journal<()>,
    is_quiet: Journal<()>,
    /// The messages that any client has received, by epoch and offset.
    received: Arc<Mutex<BTreeMap<(u64, u64), String>>>,
    /// Differences between the clients and the store. Empty when there are none.
    differences: Journal<String>,
}

impl Records {
    fn new() -> Self {
        let clients = (0..CLIENTS).map(|n| Client::new(n % NODES.len()));
        Records {
            clients: Arc::new(Mutex::new(clients.collect())),
            stored: Journal::new(),
            violations: Journal::new(),
            lives: Journal::new(),
            is_quiet: Journal::new(),
            received: Arc::default(),
            differences: Journal::new(),
        }
    }

    /// A client receives a line.
    fn receive(&self, client: usize, line: &str) -> std::result::Result<(), String> {
        let message = self.change(client, |client| client.receive(line))?;
        let Some((position, text)) = message else { return Ok(()) };
        let mut received = self.received.lock().unwrap();
        let first = received.entry((position.epoch, position.offset)).or_insert_with(|| text.clone());
        if *first != text {
            return Err(format!("{position} is {text}, and another client has received {first}"));
        }
        Ok(())
    }

    fn change<R>(&self, client: usize, change: impl FnOnce(&mut Client) -> R) -> R {
        change(&mut self.clients.lock().unwrap()[client])
    }
}

/// A message until it is certainly stored or refused.
struct Outgoing {
    text: String,
    answer: Option<Completion<Receipt>>,
}

/// One node with its clients.
struct Node {
    number: usize,
    lobby: Topic<Bytes>,
    members: BTreeMap<usize, EmbeddedChannel<Bytes>>,
    outgoing: Option<Outgoing>,
    life: usize,
    published: usize,
    records: Records,
}

impl Node {
    fn step(&mut self) -> Result {
        self.publish()?;
        for client in 0..CLIENTS {
            if self.records.change(client, |client| client.at) == self.number {
                self.serve(client);
            }
        }
        Ok(())
    }

    fn publish(&mut self) -> Result {
        let is_quiet = !self.records.is_quiet.is_empty();
        let Some(outgoing) = &mut self.outgoing else {
            if !is_quiet && chance("publish", 700_000) {
                self.published += 1;
                let text = format!("{}.{}", self.life, self.published);
                self.outgoing = Some(Outgoing { text, answer: None });
            }
            return Ok(());
        };
        let Some(answer) = outgoing.answer.take() else {
            let id = MessageId::new("publisher", &outgoing.text)?;
            let message = NewMessage::new(Bytes::from(outgoing.text.clone())).id(id);
            outgoing.answer = Some(self.lobby.publish(message));
            return Ok(());
        };
        if !answer.is_done() {
            outgoing.answer = Some(answer);
            return Ok(());
        }
        // After an error it is sent again with its id, because it may be stored.
        if let Ok(Receipt { position: Some(position), is_duplicate, .. }) = answer.wait() {
            if is_duplicate {
                sometimes("a message was sent again");
            }
            self.records.stored.push((position, outgoing.text.clone()));
            self.outgoing = None;
        }
        Ok(())
    }

    fn serve(&mut self, number: usize) {
        let is_quiet = !self.records.is_quiet.is_empty();
        let Some(channel) = self.members.get_mut(&number) else {
            return self.connect(number);
        };
        channel.run_pending();
        let output = channel.read_outbound();
        for line in String::from_utf8_lossy(&output).lines() {
            if let Err(why) = self.records.receive(number, line) {
                self.records.violations.push(format!("client {number}: {why}"));
            }
        }
        if !channel.is_open() {
            sometimes("a member was closed");
            self.members.remove(&number);
        } else if !is_quiet && chance("move", 150_000) {
            channel.close();
            channel.run_pending();
            self.members.remove(&number);
            let next = if chance("back", 300_000) { self.number } else { (self.number + 1) % NODES.len() };
            self.records.change(number, |client| client.at = next);
        }
    }

    fn connect(&mut self, number: usize) {
        let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Quiet));
        let seen = self.records.change(number, |client| client.seen);
        let mut subscription =
            Subscription::new(channel.channel()).greeting(|joined| Some(greeting(joined).into()));
        if let Some(seen) = seen {
            subscription = subscription.after(seen);
        }
        let handle = channel.channel();
        self.lobby.subscribe(subscription).on_complete(move |joined| {
            if joined.is_err() {
                handle.close();
            }
        });
        self.members.insert(number, channel);
    }
}

fn open(name: &str) -> Result<(EventLoopGroup, Topics, Topic<Bytes>)> {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let broker = RedisBroker::new(RedisClient::builder(&group, "redis://redis").connect()?);
    let topics =
        Topics::builder(&group, broker).node(name).partitions(1).verify_interval(2 * SECOND).build()?;
    let lobby = topics.topic("lobby", Lines).history(HistoryLimits::new().messages(KEPT)).open()?;
    Ok((group, topics, lobby))
}

fn serve(number: usize, records: &Records) -> Result {
    let (_group, _topics, lobby) = open(NODES[number].0)?;
    records.lives.push(());
    let mut node = Node {
        number,
        lobby,
        members: BTreeMap::new(),
        outgoing: None,
        life: records.lives.len(),
        published: 0,
        records: records.clone(),
    };
    loop {
        node.step()?;
        sleep(STEP);
    }
}

/// Reads the topic, and compares the clients with it, once all is quiet.
fn compare(records: &Records, persistence: Persistence) -> Result {
    let (_group, topics, _lobby) = open("reader")?;
    loop {
        sleep(SECOND);
        if records.is_quiet.is_empty() {
            continue;
        }
        let range = ReadRange::new(ReadFrom::After(0));
        let Ok(history) = topics.broker().read(&TopicName::new("lobby")?, range).wait() else { continue };
        let clients = records.clients.lock().unwrap().clone();
        let mut differences: Vec<String> =
            clients.iter().filter_map(|client| client.compare(&history).err()).collect();
        differences.extend(lost(&history, records, persistence));
        records.differences.push(differences.join(", "));
    }
}

/// Returns a message that was acknowledged and is not stored, or stored twice.
fn lost(history: &History, records: &Records, persistence: Persistence) -> Option<String> {
    let found = texts(history);
    if let Some(twice) = stored_twice(&found) {
        return Some(format!("{twice} is stored twice"));
    }
    let is_lost = |(position, text): &&(Position, String)| {
        position.offset >= history.oldest && found.get(&position.offset) != Some(text)
    };
    let lost = records.stored.with(|stored| stored.iter().find(is_lost).cloned());
    lost.filter(|_| persistence == Persistence::Always)
        .map(|(position, text)| format!("{position} {text} was acknowledged and is lost"))
}

fn scenario(simulation: &mut Simulation, persistence: Persistence) -> std::result::Result<(), Failure> {
    let records = Records::new();
    let redis = redis(simulation, persistence);
    for (number, (name, address)) in NODES.into_iter().enumerate() {
        let records = records.clone();
        simulation.node(name, address, move || serve(number, &records));
    }
    let compared = records.clone();
    simulation.node("reader", "10.0.0.5", move || compare(&compared, persistence));
    let violations = records.violations.clone();
    simulation.check("messages of a client", move || {
        violations.with(|violations| violations.first().map_or(Ok(()), |first| Err(first.clone())))
    });
    simulation.run_for(3 * SECOND)?;
    // Besides the faults, so that many nodes with members see that Redis has lost messages.
    if simulation.seed().is_multiple_of(2) {
        simulation.power_off(redis);
        simulation.run_for(SECOND / 2)?;
        simulation.restart(redis);
    }
    simulation.run_for(5 * SECOND)?;
    simulation.heal();
    records.is_quiet.push(());
    let differences = records.differences.clone();
    let is_settled = || differences.with(|all| all.last().is_some_and(String::is_empty));
    simulation.run_until("the clients have the messages of the store", 60 * SECOND, is_settled).map_err(
        |failure| match records.differences.with(|all| all.last().cloned()) {
            Some(last) if !last.is_empty() => simulation.fail(last),
            _ => failure,
        },
    )
}

fn run(exploration: Exploration, persistence: Persistence) -> Explored {
    exploration
        .faults(faults(300_000))
        .run_twice(false)
        .run(|simulation| scenario(simulation, persistence))
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// Explores always the same runs, because the test asks for states that not every run reaches.
#[test]
fn clients_that_move_between_nodes_have_each_message_once() {
    let of = |persistence| run(Exploration::new(8).first_seed(1), persistence);
    let explored = [Persistence::Always, Persistence::EverySecond, Persistence::Never].map(of);
    for state in [
        "a client resumes",
        "a client cannot resume",
        "a client is notified of a loss",
        "a client is notified of a gap",
        "a message was sent again",
        "a member was closed",
    ] {
        assert!(explored.iter().any(|explored| explored.reached(state) > 0), "{state}");
    }
    assert_eq!(explored[0].reached("a client is notified of a loss"), 0);
}

/// Each time other runs, like the next two tests. They may reach any states.
#[test]
fn no_acknowledged_message_is_lost_with_always_in_new_runs() {
    run(Exploration::new(4), Persistence::Always);
}

#[test]
fn clients_agree_with_everysec_in_new_runs() {
    run(Exploration::new(4), Persistence::EverySecond);
}

#[test]
fn clients_agree_without_persistence_in_new_runs() {
    run(Exploration::new(4), Persistence::Never);
}
