//! A node in a process of its own, and the parent's side of it.

use crate::support::{
    loops::one_loop,
    process::{Process, play, plays},
    wait::{PATIENCE, done},
};
use netwheel::{
    Error,
    durable::{Due, DurableTimers, Late, PostgresStore, Retry, Topic},
};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// What a node is started with.
pub(crate) struct NodeSettings {
    pub(crate) config: String,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) lease: Duration,
}

/// The node. The first line of its input has the settings, the others are commands.
///
/// The topic "work" writes the payload, the run and the node to the table `effects` of the schema,
/// in the transaction that ends the run. It writes a line to the output when the handler begins.
/// The topic "hold" does the same, but ends its runs only after the command `release`.
#[test]
fn a_node() {
    if !plays("a_node") {
        return;
    }
    let mut lines = io::stdin().lines().map(Result::unwrap);
    let settings = lines.next().unwrap();
    let [config, schema, name, lease] = settings.split('|').collect::<Vec<_>>()[..] else {
        panic!("{settings}");
    };
    let group = one_loop();
    let store = PostgresStore::builder(config)
        .schema(schema)
        .partitions(16)
        .lease(Duration::from_millis(lease.parse().unwrap()))
        .node(name)
        .open()
        .unwrap();
    let held: Arc<Mutex<Vec<Due<String>>>> = Arc::default();
    let sql = format!("INSERT INTO {schema}.effects VALUES ($1, $2, '{name}')");
    let end = move |due: Due<String>| {
        let (payload, run, sql) = (due.payload().clone(), run_of(&due), sql.clone());
        due.done_with(move |tx| {
            let inserted = tx.postgres()?.execute(&sql, &[&payload, &run]);
            inserted.map(drop).map_err(Error::other)
        });
    };
    let (end_work, hold) = (end.clone(), held.clone());
    let timers = DurableTimers::builder(store)
        .near(Duration::from_secs(60))
        .topic(Topic::new("work", Late::RunOnce, Retry::backoff(20), move |due: Due<String>| {
            println!("fired {} {}", due.payload(), run_of(&due));
            end_work(due);
        }))
        .topic(Topic::new("hold", Late::RunOnce, Retry::backoff(20), move |due: Due<String>| {
            hold.lock().unwrap().push(due);
        }))
        .start(&group)
        .unwrap();
    println!("ready");
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            // Timers of a topic, with the payloads from..to, due in `first` ms and every `step` ms.
            ["start", topic, from, to, first, step] => {
                let [from, to, first, step] = [from, to, first, step].map(|n| n.parse::<u64>().unwrap());
                let starts: Vec<_> = (from..to)
                    .map(|n| {
                        let delay = Duration::from_millis(first + (n - from) * step);
                        let payload = n.to_string();
                        timers.at(topic, delay, &payload).key(format!("{topic} {n}")).start()
                    })
                    .collect();
                let stored = starts.into_iter().map(done).filter(Result::is_ok).count();
                println!("stored {stored}");
            }
            ["every", from, to, period] => {
                for n in from.parse::<u64>().unwrap()..to.parse().unwrap() {
                    let period = Duration::from_millis(period.parse().unwrap());
                    done(timers.every("work", period, &n.to_string()).key(n.to_string()).start()).unwrap();
                }
                println!("stored");
            }
            ["release"] => {
                held.lock().unwrap().drain(..).for_each(&end);
                println!("released");
            }
            ["held"] => println!("held {}", held.lock().unwrap().len()),
            ["stale"] => println!("stale {}", timers.metrics().stale),
            ["close"] => {
                done(timers.close()).unwrap();
                println!("closed");
            }
            _ => panic!("{line}"),
        }
    }
}

fn run_of(due: &Due<String>) -> i64 {
    let since = due.scheduled().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// A running node.
pub(crate) struct Node {
    pub(crate) process: Process,
}

impl Node {
    pub(crate) fn start(settings: &NodeSettings) -> Self {
        let mut process = Process::start(&play("a_node"));
        let NodeSettings { config, schema, name, lease } = settings;
        process.say(&format!("{config}|{schema}|{name}|{}\n", lease.as_millis()));
        process.stdout.wait_for("ready");
        Node { process }
    }

    /// Sends a command, and returns the rest of the line that answers it.
    pub(crate) fn ask(&mut self, command: &str, answer: &str) -> String {
        self.process.say(&format!("{command}\n"));
        self.process.stdout.wait_for(answer).trim().to_owned()
    }

    /// Stores timers, and expects that all were stored.
    pub(crate) fn starts(&mut self, timers: &str, count: u64) {
        assert_eq!(self.ask(&format!("start {timers}"), "stored "), count.to_string());
    }

    /// Waits until the node holds this number of runs of the topic "hold".
    pub(crate) fn wait_for_held(&mut self, runs: usize) {
        self.wait_for("held", |held| held == runs as u64);
    }

    /// Waits until the answer to a command is a number as expected.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, command: &str, expected: impl Fn(u64) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let number = self.ask(command, &format!("{command} ")).parse().unwrap();
            if expected(number) {
                return;
            }
            assert!(Instant::now() < end, "{command} {number}");
        }
    }

    /// Closes the timers and ends the process.
    pub(crate) fn close(mut self) {
        self.process.say("close\n");
        self.process.succeed();
    }
}

/// Counts equal lines.
pub(crate) fn tally<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut tally = BTreeMap::new();
    items.into_iter().for_each(|item| *tally.entry(item).or_default() += 1);
    tally
}
