//! Timers survive kills of nodes amid faults of the server and of the links to it.
//!
//! Three nodes start timers without a pause. They print which starts were stored and which handlers
//! were called. Their wall clocks are wrong and jump. Each round injects a fault. In the end, one
//! more node lets everything fire, and the oracle compares the output with the tables.
//!
//! `KILLS=1000 cargo test --release --features full --test durable postgres::kills -- --nocapture`
//! plays more rounds than the gate does.

mod oracle;
mod worker;

use super::{
    processes::Cluster,
    proxy::Proxy,
    server::{Server, config},
};
use oracle::SharedOracle;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

const SCHEMA: &str = "kills";

const NODES: usize = 3;

/// The lowest number of starts between two faults.
const STARTS: usize = 30;

/// Ends the sessions that have locked a table of the schema.
const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_locks
    JOIN pg_class c ON c.oid = relation JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname = '$' AND pid <> pg_backend_pid()";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A node is killed, and replaced.
    Kill,
    /// A node is stopped until others have fired its timers, and continued.
    Stop,
    /// The connections of a node are closed.
    Cut,
    /// The link of a node is slow.
    Slow,
    /// The server ends connections that are in a transaction.
    Terminate,
    /// The server crashes, and is started again.
    Restart,
    /// A node is closed while a handler does not answer, and replaced.
    StuckClose,
}

const FAULTS: [Fault; 7] =
    [Fault::Kill, Fault::Stop, Fault::Cut, Fault::Slow, Fault::Terminate, Fault::Restart, Fault::StuckClose];

/// A node, and the proxy to its server.
struct Worker {
    name: String,
    child: Child,
    proxy: Proxy,
    listener: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(number: usize, mode: &str, port: u16, oracle: &Arc<SharedOracle>) -> Self {
        let (name, proxy) = (format!("worker {number}"), Proxy::to(port));
        let command = worker::command();
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (oracle, node) = (oracle.clone(), name.clone());
        let listener = thread::spawn(move || {
            for line in lines {
                // The harness prints lines of its own, and the beginning of the first one.
                if let Some((_, line)) = line.unwrap().split_once('@') {
                    oracle.add(&node, line);
                }
            }
        });
        let mut worker = Worker { name, child, proxy, listener: Some(listener) };
        let settings = format!("{}|{SCHEMA}|{}|{mode}", config(worker.proxy.port), worker.name);
        worker.say(&settings);
        worker
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until others own the partitions of this node.
    fn wait_until_replaced(&self, cluster: &mut Cluster) {
        let sql = format!(
            "SELECT count(*) = 0 FROM $.partitions p JOIN $.nodes n ON n.id = p.owner WHERE n.name = '{}'",
            self.name
        );
        cluster.wait_until("others own the partitions of a node", &sql);
    }
}

/// Kills the node, and reads the remaining output.
impl Drop for Worker {
    fn drop(&mut self) {
        let has_ended = self.child.try_wait().unwrap();
        let _ = self.child.kill();
        self.child.wait().unwrap();
        let read = self.listener.take().unwrap().join();
        if !thread::panicking() {
            assert_eq!(has_ended, None, "a node ended by itself");
            read.expect("the oracle knows all lines");
        }
    }
}

/// The running workers, and the number of workers that were ever started.
struct Workers {
    workers: Vec<Worker>,
    started: usize,
    port: u16,
    oracle: Arc<SharedOracle>,
}

impl Workers {
    fn new(port: u16) -> Self {
        let mut workers = Workers { workers: Vec::new(), started: 0, port, oracle: Arc::default() };
        (0..NODES).for_each(|_| workers.add("work"));
        workers
    }

    fn add(&mut self, mode: &str) {
        self.workers.push(Worker::start(self.started, mode, self.port, &self.oracle));
        self.started += 1;
    }

    /// Waits until the nodes have stored some more timers.
    fn wait_for_starts(&self, starts: usize) {
        let enough = self.oracle.with(|oracle| oracle.stored.len()) + starts;
        self.oracle.wait_until("timers are stored", |oracle| oracle.stored.len() >= enough);
    }

    /// Injects a fault. Returns how many times it has happened.
    fn inject(&mut self, fault: Fault, server: &Server, cluster: &mut Cluster) -> usize {
        let victim = fastrand::usize(..NODES);
        let mut happened = 0;
        match fault {
            Fault::Kill => {
                // Panics unless the node was running.
                drop(self.workers.remove(victim));
                happened += 1;
                self.add("work");
            }
            Fault::Stop => {
                self.workers[victim].signal("STOP");
                self.workers[victim].wait_until_replaced(cluster);
                happened += 1;
                self.wait_for_starts(STARTS);
                self.workers[victim].signal("CONT");
            }
            Fault::Cut => {
                for _ in 0..3 {
                    self.wait_for_starts(STARTS / 4);
                    happened += self.workers[victim].proxy.cut();
                }
            }
            Fault::Slow => {
                let proxy = self.workers[victim].proxy.clone();
                let before = proxy.delays();
                proxy.limit(20_000);
                self.wait_for_starts(STARTS);
                proxy.limit(u32::MAX);
                happened += proxy.delays() - before;
            }
            Fault::Terminate => {
                for attempt in 0..200 {
                    // Maybe no session was in a transaction.
                    if attempt >= 10 && happened > 0 {
                        break;
                    }
                    happened += cluster.count_true(TERMINATE);
                    self.wait_for_starts(1);
                }
            }
            Fault::Restart => {
                server.restart();
                cluster.connect();
                happened += 1;
            }
            Fault::StuckClose => {
                self.workers[victim].say("hold");
                let mut closing = self.workers.remove(victim);
                self.oracle.wait_until("a run is held", |oracle| oracle.held.contains(&closing.name));
                closing.say("close");
                self.add("work");
                closing.wait_until_replaced(cluster);
                happened += 1;
            }
        }
        self.wait_for_starts(STARTS);
        happened
    }
}

#[test]
fn kills_amid_faults_of_the_server_and_its_links_lose_nothing() {
    let Some(server) = Server::start() else { return };
    // The supervisor ends with this process.
    let server = Box::leak(Box::new(server));
    let mut cluster = Cluster::on(server, SCHEMA);
    let mut workers = Workers::new(server.port());
    let rounds = std::env::var("KILLS").map_or(FAULTS.len(), |kills| kills.parse().expect("a number"));
    let mut faults = FAULTS;
    let mut happened: BTreeMap<Fault, usize> = FAULTS.map(|fault| (fault, 0)).into();
    workers.wait_for_starts(STARTS);
    for round in 0..rounds {
        if round % FAULTS.len() == 0 {
            fastrand::shuffle(&mut faults);
        }
        let fault = faults[round % FAULTS.len()];
        *happened.entry(fault).or_default() += workers.inject(fault, server, &mut cluster);
        if round % 100 == 99 {
            eprintln!("{} faults", round + 1);
        }
    }
    workers.workers.clear();
    workers.add("drain");
    let begun = Instant::now();
    cluster.wait_for_all();
    eprintln!("the last timer fired {:?} after the last fault", begun.elapsed());
    workers.workers.clear();
    eprintln!("{rounds} faults of the server, of links and of nodes: {happened:?}");
    workers.oracle.with(|oracle| oracle.check(&mut cluster));
    let is_complete = happened.values().all(|times| *times > 0);
    assert!(is_complete || rounds < FAULTS.len(), "a kind of fault did not happen: {happened:?}");
}
