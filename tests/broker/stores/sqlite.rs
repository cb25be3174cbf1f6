//! Topics in an SQLite file.

use super::node::{Node, topic};
use crate::{
    members::Numbered,
    support::{
        loops::{advance, manual_group, the_loop},
        process::{Process, play, plays},
        wait::{PATIENCE, done, receive, wait_until},
    },
};
use bytes::Bytes;
use netwheel::{
    Error,
    broker::{
        Broker, BrokerError, HistoryLimits, MessageId, Position, SqliteBroker, TopicName, Topics,
        store::{BrokerEvent, BrokerSink, BrokerStart, Notification, Partitions, TopicSeen},
    },
    testing::ManualClock,
    time::{Clock, SystemClock},
};
use std::{
    io::Write,
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

fn open(path: &Path) -> Node<SqliteBroker> {
    Node::start(SqliteBroker::open(path).unwrap())
}

#[test]
fn topics_and_positions_survive_the_end_of_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rooms.db");
    let node = open(&path);
    let positions: Vec<Position> = (0..3).map(|n| node.publish(format!("{n}")).unwrap().position).collect();
    done(node.broker.close()).unwrap();
    let node = open(&path);
    assert!(positions.iter().all(|position| node.recovers(*position)));
    assert_eq!(node.publish("3").unwrap().position, Position::new(positions[0].epoch, 4));
}

/// The child prints each position after its publish has completed. All of them are in the file
/// after a kill.
#[test]
fn a_message_is_in_the_file_when_publish_completes() {
    const ROLE: &str = "a_message_is_in_the_file_when_publish_completes";
    if plays(ROLE) {
        let node = open(Path::new(&std::env::var("NETWHEEL_TEST_FILE").unwrap()));
        for number in 0.. {
            node.publish(format!("{number}")).unwrap();
            println!("stored {number}");
            std::io::stdout().flush().unwrap();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rooms.db");
    let mut command = play(ROLE);
    command.insert(1, format!("NETWHEEL_TEST_FILE={}", path.display()));
    for round in 1..=3_u64 {
        let mut child = Process::start(&command);
        child.stdout.wait_for(&format!("stored {}", 20 * round));
        drop(child);
        let node = open(&path);
        assert!(node.top(None).top > 20 * round, "round {round}");
        done(node.broker.close()).unwrap();
    }
}

#[test]
fn a_file_has_one_broker_and_one_kind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rooms.db");
    let node = open(&path);
    assert!(matches!(SqliteBroker::open(&path), Err(BrokerError::InUse)));
    drop(node);
    let other = directory.path().join("other.db");
    std::fs::write(&other, "this is not a database, and long enough to be taken for one").unwrap();
    assert!(matches!(SqliteBroker::open(&other), Err(BrokerError::Unsuitable(_))));
    let missing = directory.path().join("none/rooms.db");
    assert!(matches!(SqliteBroker::open(missing), Err(BrokerError::Failed(_))));
}

#[test]
fn wrong_settings_are_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let open = || SqliteBroker::open(directory.path().join("rooms.db")).unwrap();
    type Set = fn(SqliteBroker) -> SqliteBroker;
    let wrong: [Set; 3] = [
        |broker| broker.max_pending(0),
        |broker| broker.keep_idle(Duration::from_secs(59)),
        |broker| broker.max_log_bytes(1),
    ];
    for set in wrong {
        assert!(matches!(Node::try_start(set(open()), 64), Err(Error::Setting(_))));
    }
    let node = Node::start(open().max_pending(1));
    assert_eq!(stored_while_the_writer_is_blocked(&node, 3, "x"), [true, false, false]);
}

/// All nodes on a file have the same settings, except for `max_pending`.
#[test]
fn settings_of_a_clone_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let first = Node::start(SqliteBroker::open(directory.path().join("rooms.db")).unwrap());
    let clone = || first.broker.clone();
    let wrong = [clone().max_pending(0), clone().keep_idle(MINUTE), clone().max_log_bytes(1 << 20)];
    for (broker, setting) in wrong.into_iter().zip(["max_pending", "keep_idle", "max_log_bytes"]) {
        match Node::try_start(broker, 64).map(|_| ()) {
            Err(Error::Setting(refused)) => assert_eq!(refused.setting(), setting),
            other => panic!("{setting}: {other:?}"),
        }
    }
    Node::start(clone().max_pending(1)).publish("x").unwrap();
}

/// Blocks the thread of the writer, on which it runs, until the test drops the sender.
struct Block {
    begun: Sender<()>,
    ended: Mutex<Receiver<()>>,
}

impl BrokerSink for Block {
    fn handle(&self, event: BrokerEvent) {
        if let BrokerEvent::Notified(_) = event {
            let _ = self.begun.send(());
            let _ = self.ended.lock().unwrap().recv_timeout(PATIENCE);
        }
    }
}

/// Publishes a number of messages while the writer is blocked. Returns for each whether it was
/// stored. The others were refused because too much waits.
fn stored_while_the_writer_is_blocked(
    node: &Node<SqliteBroker>,
    number: usize,
    payload: impl Into<Bytes>,
) -> Vec<bool> {
    let (begun, is_blocked) = channel();
    let (end, ended) = channel();
    let blocking = node.broker.clone();
    let sink = Arc::new(Block { begun, ended: Mutex::new(ended) });
    blocking.start(BrokerStart::new(node.partitions, sink, Arc::new(SystemClock), 1)).unwrap();
    blocking.follow(node.partitions.of(&topic()), true);
    blocking.notify(Notification::new(topic(), "block".into())).unwrap();
    receive(&is_blocked);
    let payload = payload.into();
    let all: Vec<_> = (0..number).map(|_| node.broker.publish(node.publication(payload.clone()))).collect();
    drop(end);
    let is_stored = |one| match done(one) {
        Ok(_) => true,
        Err(error) if matches!(BrokerError::of(&error), Some(BrokerError::Full(_))) => false,
        Err(error) => panic!("{error}"),
    };
    all.into_iter().map(is_stored).collect()
}

/// A sink that answers each notification with another one, so that requests never end.
struct Echo(OnceLock<SqliteBroker>);

impl BrokerSink for Echo {
    fn handle(&self, event: BrokerEvent) {
        if let (BrokerEvent::Notified(notification), Some(broker)) = (event, self.0.get()) {
            let _ = broker.notify(notification);
        }
    }
}

#[test]
fn notifications_without_end_do_not_delay_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let broker = SqliteBroker::open(directory.path().join("rooms.db")).unwrap();
    let (echo, partitions) = (Arc::new(Echo(OnceLock::new())), Partitions::default());
    let other = broker.clone();
    let start = |sink: Arc<Echo>| BrokerStart::new(partitions, sink, Arc::new(SystemClock), 1);
    other.start(start(echo.clone())).unwrap();
    other.follow(partitions.of(&topic()), true);
    let sender = other.clone();
    sender.start(start(Arc::new(Echo(OnceLock::new())))).unwrap();
    echo.0.set(sender).unwrap();
    let node = Node::start(broker);
    node.broker.notify(Notification::new(topic(), "again".into())).unwrap();
    for _ in 0..3 {
        node.publish("x").unwrap();
    }
    done(echo.0.get().unwrap().close()).unwrap();
    done(other.close()).unwrap();
}

/// Messages beyond the limits are removed in steps, and are not read meanwhile.
#[cfg(feature = "rusqlite-040")]
#[test]
fn many_messages_are_removed_in_steps() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rooms.db");
    let node = open(&path);
    let publish = |messages: u64| {
        let mut publication = node.publication("x");
        publication.limits = publication.limits.messages(messages);
        node.broker.publish(publication)
    };
    let all: Vec<_> = (0..2500).map(|_| publish(10_000)).collect();
    for one in all {
        done(one).unwrap();
    }
    done(publish(0)).unwrap();
    let history = node.read(0).unwrap();
    assert_eq!((history.top, history.oldest, history.messages.len()), (2501, 2502, 0));
    done(node.broker.close()).unwrap();
    let rows = || {
        let connection = netwheel::durable::rusqlite::Connection::open(&path).unwrap();
        connection.query_row("SELECT count(*) FROM messages", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert!((1..2500).contains(&rows()), "{} messages are left", rows());
    let node = open(&path);
    assert!(node.read(0).unwrap().messages.is_empty());
    node.publish("new").unwrap();
    assert_eq!(node.read(0).unwrap().messages.len(), 1);
}

#[test]
fn the_bytes_that_wait_are_limited() {
    let directory = tempfile::tempdir().unwrap();
    let node = open(&directory.path().join("rooms.db"));
    let stored = stored_while_the_writer_is_blocked(&node, 66, vec![0; 1 << 20]);
    assert_eq!(stored, (0..66).map(|number| number < 64).collect::<Vec<_>>());
}

const MINUTE: Duration = Duration::from_secs(60);

/// Opens a file with a short life of metadata, and removes expired rows.
fn open_later(path: &Path, clock: &ManualClock) -> Node<SqliteBroker> {
    let broker = SqliteBroker::open(path).unwrap().keep_idle(MINUTE);
    let node = Node::start_on(Arc::new(clock.clone()), broker, 64).unwrap();
    // Expired rows are removed at once, but perhaps behind the first operation.
    let other = TopicName::new("other").unwrap();
    done(node.broker.tops(node.partitions.of(&other), vec![TopicSeen::new(other, None)])).unwrap();
    node
}

/// Its messages have expired, and it has no new ones.
#[test]
fn a_quiet_topic_with_readers_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rooms.db");
    let (group, clock) = manual_group();
    let topics =
        Topics::builder(&group, SqliteBroker::open(&path).unwrap().keep_idle(MINUTE)).build().unwrap();
    let history = HistoryLimits::new().age(Duration::from_secs(1));
    let lobby = topics.topic("lobby", Numbered).history(history).open().unwrap();
    let position = done(lobby.publish(Bytes::from("x"))).unwrap().position.unwrap();
    // Behind the message, whose event would spare a question.
    let watch = lobby.watch();
    for _ in 0..12 {
        let before = topics.metrics().verifications;
        advance(the_loop(&group), &clock, Duration::from_secs(10));
        wait_until("the partition is verified", || topics.metrics().verifications > before);
    }
    done(topics.close()).unwrap();
    drop((watch, lobby, topics));
    let node = open_later(&path, &clock);
    assert!(node.recovers(position));
    assert_eq!(node.publish("y").unwrap().position, Position::new(position.epoch, 2));
}

/// The metadata of an idle topic is kept for a shorter time than the ids of messages.
#[test]
fn an_id_counts_in_an_idle_topic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rooms.db");
    let clock = ManualClock::new();
    let publish = |node: &Node<SqliteBroker>| {
        let mut publication = node.publication("once");
        publication.id = Some(MessageId::new("ann", "1").unwrap());
        publication.window = 10 * MINUTE;
        publication.limits = publication.limits.messages(0);
        done(node.broker.publish(publication)).unwrap()
    };
    let mut node = open_later(&path, &clock);
    let position = publish(&node).position;
    for (minutes, is_duplicate) in [(9, true), (1, false)] {
        done(node.broker.close()).unwrap();
        clock.advance(minutes * MINUTE);
        node = open_later(&path, &clock);
        let again = publish(&node);
        assert_eq!((again.is_duplicate, again.position == position), (is_duplicate, is_duplicate));
    }
}

/// Ten years, by which a clock is wrong.
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[test]
fn a_clock_that_is_years_ahead_for_a_moment_removes_no_message() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let node = open_later(&directory.path().join("rooms.db"), &clock);
    node.publish("before").unwrap();
    let time = clock.wall_time();
    clock.set_wall_time(time + YEARS);
    node.publish("meanwhile").unwrap();
    clock.set_wall_time(time);
    node.publish("after").unwrap();
    assert_eq!(node.read(0).unwrap().messages.len(), 3);
}

/// Its time comes in years, so its id would count until then.
#[test]
fn an_id_from_a_clock_that_was_years_ahead_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let node = open_later(&directory.path().join("rooms.db"), &clock);
    let publish = || {
        let mut publication = node.publication("once");
        publication.id = Some(MessageId::new("ann", "1").unwrap());
        done(node.broker.publish(publication)).unwrap().is_duplicate
    };
    let time = clock.wall_time();
    clock.set_wall_time(time + YEARS);
    node.publish("the jump is noticed").unwrap();
    clock.advance(MINUTE);
    assert!(!publish());
    assert!(publish());
    clock.set_wall_time(time);
    clock.advance(11 * MINUTE);
    assert!(!publish());
    assert!(publish());
}
