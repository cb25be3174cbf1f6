//! Nodes with a simulated Redis amid kills, power failures and cuts.
//!
//! A reader with the position of a message either finds that message, or is told that its position
//! is not valid. With `appendfsync always`, no acknowledged message is lost. A message that was
//! sent again with its id is stored once.

use netwheel::{
    EventLoopGroup, Result,
    broker::{
        Broker, BrokerError, MessageId, Position, RedisBroker, TopicName,
        store::{
            BrokerEvent, BrokerSink, BrokerStart, History, Partitions, Publication, ReadFrom, ReadRange,
        },
    },
    redis::RedisClient,
    testing::{
        redis::{Persistence, RedisDisk, RedisServer},
        simulation::{
            Exploration, Explored, Failure, Faults, Journal, NodeId, Simulation, seed, sleep, sometimes,
        },
    },
    time::SystemClock,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const SECOND: Duration = Duration::from_secs(1);

struct Ignore;

impl BrokerSink for Ignore {
    fn handle(&self, _event: BrokerEvent) {}
}

/// What the programs record.
#[derive(Clone, Default)]
struct Records {
    stored: Journal<(Position, String)>,
    checks: Journal<()>,
    violations: Journal<String>,
    /// The number of lives of the publishers, for names.
    lives: Journal<()>,
}

fn topic() -> TopicName {
    TopicName::new("lobby").unwrap()
}

fn broker() -> Result<(EventLoopGroup, RedisBroker)> {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let broker = RedisBroker::new(RedisClient::builder(&group, "redis://redis").connect()?);
    broker.start(BrokerStart::new(
        Partitions::new(4)?,
        Arc::new(Ignore),
        Arc::new(SystemClock),
        seed().unwrap_or(1),
    ))?;
    Ok((group, broker))
}

/// Publishes numbered messages, each again until it is certainly stored or refused.
fn publish(records: &Records) -> Result {
    let (_group, broker) = broker()?;
    records.lives.push(());
    let life = records.lives.len();
    for number in 0.. {
        let text = format!("{life}.{number}");
        let mut publication = Publication::new(topic(), text.clone().into());
        publication.id = Some(MessageId::new("publisher", &text)?);
        publication.limits = publication.limits.messages(100_000);
        loop {
            match broker.publish(publication.clone()).wait() {
                Ok(published) => {
                    if published.is_duplicate {
                        sometimes("a message was sent again");
                    }
                    records.stored.push((published.position, text));
                    break;
                }
                Err(error) if BrokerError::of(&error).is_some_and(BrokerError::may_be_stored) => {}
                Err(_) => break,
            }
            sleep(SECOND / 10);
        }
        sleep(SECOND / 20);
    }
    Ok(())
}

/// Reads the whole topic. `None` if that has failed.
fn read(broker: &RedisBroker) -> Option<History> {
    let mut all: Option<History> = None;
    loop {
        let after = all.as_ref().map_or(0, |all| all.oldest - 1 + all.messages.len() as u64);
        let part = broker.read(&topic(), ReadRange::new(ReadFrom::After(after))).wait().ok()?;
        let all = match &mut all {
            None => all.insert(part),
            Some(all) if all.epochs == part.epochs => {
                all.messages.extend(part.messages);
                all.top = part.top;
                all
            }
            // Something was lost meanwhile.
            Some(_) => return None,
        };
        if all.messages.len() as u64 == (all.top + 1).saturating_sub(all.oldest) {
            return Some(all.clone());
        }
    }
}

fn check(records: &Records, persistence: Persistence) -> Result {
    let (_group, broker) = broker()?;
    loop {
        sleep(SECOND);
        // Only messages that were acknowledged before the read.
        let stored = records.stored.with(<[_]>::to_vec);
        let Some(history) = read(&broker) else { continue };
        records.checks.push(());
        let violate = |text: String| records.violations.push(text);
        let found = texts(&history);
        if let Some(twice) = stored_twice(&found) {
            violate(format!("{twice} is stored twice"));
        }
        if history.epochs.as_slice().len() > 1 {
            sometimes("another epoch has begun");
        }
        for (position, text) in &stored {
            let is_valid = history.epochs.is_valid(*position, history.top);
            let is_found = found.get(&position.offset) == Some(text);
            if !is_valid {
                sometimes("a reader was notified of a loss");
            }
            // The list of epochs is limited, so an old position may be refused without a loss.
            let is_listed = history.epochs.as_slice()[0].first <= position.offset;
            if is_valid && is_listed && !is_found {
                violate(format!("{position} is valid, but {text} is {:?}", found.get(&position.offset)));
            }
            if persistence == Persistence::Always && is_listed && !is_found {
                violate(format!(
                    "{position} {text} was acknowledged, and is {:?}",
                    found.get(&position.offset)
                ));
            }
        }
    }
}

/// Returns the texts of the messages, by their offsets.
pub(super) fn texts(history: &History) -> BTreeMap<u64, String> {
    let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
    history.messages.iter().map(|message| (message.position.offset, text(&message.payload))).collect()
}

/// Returns a text that two messages have.
pub(super) fn stored_twice(texts: &BTreeMap<u64, String>) -> Option<&String> {
    let mut texts: Vec<&String> = texts.values().collect();
    texts.sort();
    texts.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// Adds a node with Redis, which starts again after a fault.
pub(super) fn redis(simulation: &mut Simulation, persistence: Persistence) -> NodeId {
    let server = RedisServer::new(RedisDisk::new()).broker_scripts().persistence(persistence);
    simulation.node("redis", "10.0.0.1", move || {
        loop {
            if let Ok(group) = EventLoopGroup::builder().threads(1).build()
                && let Ok(bound) = server.bind(&group, "10.0.0.1:6379")
            {
                return bound.closed().wait();
            }
            sleep(SECOND);
        }
    })
}

fn scenario(simulation: &mut Simulation, persistence: Persistence) -> std::result::Result<(), Failure> {
    let records = Records::default();
    redis(simulation, persistence);
    for (name, address) in [("a", "10.0.0.2"), ("b", "10.0.0.3")] {
        let records = records.clone();
        simulation.node(name, address, move || publish(&records));
    }
    let checked = records.clone();
    simulation.node("reader", "10.0.0.4", move || check(&checked, persistence));
    let violations = records.violations.clone();
    simulation.check("positions", move || {
        violations.with(|violations| violations.first().map_or(Ok(()), |first| Err(first.clone())))
    });
    simulation.run_for(40 * SECOND)?;
    simulation.heal();
    let before = (records.checks.len(), records.stored.len());
    simulation.run_until("messages are stored and read again", 120 * SECOND, || {
        records.checks.len() > before.0 + 2 && records.stored.len() > before.1 + 2
    })
}

/// Returns faults of nodes and links with this rate, and short reads and writes.
pub(super) fn faults(rate: u32) -> Faults {
    ["node-killed", "node-loses-power", "link-cut", "link-clogged", "connection-reset"]
        .into_iter()
        .fold(Faults::none().with_races(), |faults, name| faults.rate(name, rate))
        .rate("short-read", 50_000)
        .rate("short-write", 50_000)
}

/// Explores always the same runs, because the tests ask for states that not every run reaches.
/// New runs show that they are reproducible.
fn explore(persistence: Persistence) -> Explored {
    run(Exploration::new(4).first_seed(1).run_twice(false), persistence)
}

fn run(exploration: Exploration, persistence: Persistence) -> Explored {
    exploration
        .all_faults_together()
        .faults(faults(40_000))
        .run(|simulation| scenario(simulation, persistence))
        .unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn no_acknowledged_message_is_lost_with_always() {
    let explored = explore(Persistence::Always);
    assert_eq!(explored.reached("a reader was notified of a loss"), 0);
    for state in ["another epoch has begun", "a message was sent again"] {
        assert!(explored.reached(state) > 0, "{state}");
    }
}

#[test]
fn every_reader_of_a_lost_message_is_notified_with_everysec() {
    let explored = explore(Persistence::EverySecond);
    assert!(explored.reached("a reader was notified of a loss") > 0);
}

#[test]
fn every_reader_is_notified_when_nothing_is_persistent() {
    let explored = explore(Persistence::Never);
    assert!(explored.reached("a reader was notified of a loss") > 0);
}

/// Each time other runs, of which `.ci/run` has more. They may reach any states.
#[test]
fn positions_hold_in_new_runs() {
    for persistence in [Persistence::Always, Persistence::EverySecond, Persistence::Never] {
        run(Exploration::new(1), persistence);
    }
}
