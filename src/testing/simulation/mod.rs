//! Simulated machines and networks, for tests of whole programs.
//!
//! A [`Simulation`] runs the programs of several nodes in virtual time, on one thread at a time.
//! The network between them, the faults of it and of the machines, and the order of events that
//! happen at one time come from one seed. So a run that has failed is repeated by its seed. The
//! event loops, bootstraps and handlers are those of the crate: only the sockets, the poll, the
//! clock and the threads are simulated.
//!
//! ```
//! use netwheel::{codec::Line, prelude::*, testing::simulation::Simulation};
//! use std::time::Duration;
//!
//! let mut simulation = Simulation::new(7);
//! simulation.node("server", "10.0.0.1", || {
//!     let group = EventLoopGroup::builder().threads(1).build()?;
//!     ServerBootstrap::new(&group)
//!         .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
//!         .bind("10.0.0.1:7000")?
//!         .closed()
//!         .wait()
//! });
//! let client = simulation.node("client", "10.0.0.2", || {
//!     let group = EventLoopGroup::builder().threads(1).build()?;
//!     let client = ClientBootstrap::new(&group)
//!         .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, _answer| Ok(ctx.close())));
//!     let channel = client.connect("server:7000").wait()?;
//!     channel.write("hello".into())?;
//!     channel.closed().wait().map(drop)
//! });
//! simulation.run_until_ended(client, Duration::from_secs(60))?;
//! # Ok::<(), netwheel::testing::simulation::Failure>(())
//! ```
//!
//! # What a program must not use
//!
//! | not reproducible | use instead |
//! |---|---|
//! | `std::thread::spawn` | a second program on the node ([`Simulation::spawn`]), or a [`WorkerPool`](crate::worker_pool::WorkerPool) |
//! | `std::thread::sleep`, channels and locks that a thread of a node waits in | [`Completion::wait`](crate::Completion::wait), [`sleep`] |
//! | `Instant::now`, `SystemTime::now` | the clock of the loop, [`Context::now`](crate::Context::now), or [`default_clock`](crate::time::default_clock) |
//! | random numbers of the process | a generator with the seed of [`seed`] |
//! | the order of a `HashMap` or `HashSet` | `BTreeMap`, or a hasher with fixed keys |
//! | `thread_local!` variables of loops, which all loops of all nodes share | values that the handler or the pipeline factory owns |
//! | loops, pools and timers in a `static`, which outlives its node and its simulation | values that the program owns |
//! | sockets of the standard library, files that other runs change | bootstraps; files of the test's own directory |
//!
//! Each seed of an [`Exploration`] runs twice, and the first event that differs is reported.
//! Outside of a program of a node, and on threads that it starts by itself, the crate uses the
//! operating system. The programs do not run while the test waits there, so a wait for one of their
//! loops fails with [`Error::WouldDeadlock`](crate::Error::WouldDeadlock).
//!
//! # What is not simulated
//!
//! The following fail with [`Error::Io`](crate::Error::Io) of the kind `Unsupported`: Unix sockets,
//! multicast, file descriptors of the system ([`EventLoop::register`](crate::EventLoop::register)),
//! adopted listeners, and manual event loops. `SqliteStore` and `PostgresStore` are refused too.
//! Durable timers use a `MemoryDisk` or a `MemoryDatabase`. The watchdog is ignored. Futures that
//! run on tokio are not under control. Names are those of the nodes, and `localhost`.

mod calls;
#[cfg(all(test, target_os = "linux"))]
mod conformance;
mod difference;
mod driver;
mod exploration;
mod explored;
mod failure;
mod faults;
mod journal;
#[cfg(test)]
mod lock_tests;
mod network;
mod nodes;
mod program;
mod replay;
mod run;
mod shrinking;
#[cfg(test)]
mod strike_tests;
mod tracing;

pub use calls::{chance, seed, sleep, sometimes};
pub use exploration::Exploration;
pub use explored::Explored;
pub use failure::Failure;
pub use faults::Faults;
pub use journal::Journal;
pub use network::Network;
pub use program::NodeId;

use crate::machine::simulated::{self, LoopRun, RunsSimulation, Shared};
use driver::SimulationDriver;
use program::{Program, ProgramResult};
use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc, time::Duration};

/// Nodes, their programs and the network between them. See the [module](self).
///
/// It is not `Send`: the loops of all nodes run on the thread that has made it, within
/// [`run_for`](Simulation::run_for) and the methods like it.
pub struct Simulation {
    seed: u64,
    shared: Arc<Shared>,
    /// The first program of each node.
    programs: Vec<Program>,
    /// The nodes of other programs, and the results.
    spawned: Vec<(usize, ProgramResult)>,
    driver: SimulationDriver,
    checks: Vec<(String, Check)>,
    failure: Option<Failure>,
    /// No call has returned the failure yet.
    is_unreported: bool,
    _runs_here: RunsSimulation,
}

type Check = Box<dyn FnMut() -> Result<(), String>>;

/// A loop with its node.
struct Running {
    node: usize,
    body: Box<dyn LoopRun>,
    machine: simulated::Machine,
    wait: simulated::Next,
    /// Turns since the loop slept.
    turns_awake: u32,
}

impl Simulation {
    /// Creates a simulation without nodes, with the default [`Network`] and without faults.
    ///
    /// # Panics
    /// If the system refuses to create an epoll descriptor.
    pub fn new(seed: u64) -> Self {
        Self::with_faults(seed, &Faults::none())
    }

    /// Creates a simulation in which these faults happen.
    ///
    /// # Panics
    /// If the system refuses to create an epoll descriptor.
    pub fn with_faults(seed: u64, faults: &Faults) -> Self {
        let shared = Shared::new(seed, faults.plan.clone()).expect("the system opens a poll");
        Simulation {
            seed,
            driver: SimulationDriver::new(&shared),
            shared,
            programs: Vec::new(),
            spawned: Vec::new(),
            checks: Vec::new(),
            failure: None,
            is_unreported: false,
            _runs_here: RunsSimulation::new(),
        }
    }

    /// Sets which faults happen from now on, and how often. Faults that were
    /// [ended](Simulation::heal) happen again.
    pub fn set_faults(&mut self, faults: &Faults) -> &mut Self {
        self.shared.lock().faults.set_rates(&faults.plan);
        self
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Sets latency, rate and buffers of all links.
    pub fn network(&mut self, network: Network) -> &mut Self {
        self.shared.lock().set_link(network.0);
        self
    }

    /// Adds a node with a name, by which other nodes find it, and an address. Its program begins
    /// when the simulation runs, and begins again when the node is
    /// [restarted](Simulation::restart). An IPv4 address that is mapped to IPv6 is that IPv4
    /// address.
    ///
    /// # Panics
    /// If `address` is not an IP address of a machine, for example a loopback or multicast address.
    /// If another node has the address or the name, or if the name is `localhost`.
    pub fn node(
        &mut self,
        name: &str,
        address: &str,
        main: impl Fn() -> crate::error::Result + Send + Sync + 'static,
    ) -> NodeId {
        let address: IpAddr = address.parse().expect("the address of a node is an IP address");
        // Destinations are compared in this form.
        let address = address.to_canonical();
        let is_special = address.is_loopback() || address.is_unspecified() || address.is_multicast();
        assert!(!is_special, "{address} is not the address of a node");
        assert!(name != "localhost", "localhost is each node itself");
        let index = {
            let mut world = self.shared.lock();
            for node in &world.nodes {
                assert!(node.address != address, "two nodes have the address {address}");
                assert!(node.name != name, "two nodes have the name {name}");
            }
            world.add_node(name, address)
        };
        let program = Program::new(Arc::new(main));
        program.start(&self.shared, index);
        self.programs.push(program);
        NodeId(index)
    }

    /// Starts another program on a node, on a thread of its own. It does not begin again when the
    /// node is restarted. Does nothing if the node is down.
    pub fn spawn(&mut self, node: NodeId, main: impl Fn() -> crate::error::Result + Send + Sync + 'static) {
        let result = ProgramResult::default();
        program::spawn(&self.shared, node.0, Arc::new(main), result.clone());
        self.spawned.push((node.0, result));
    }

    /// Adds a check that is called after each turn of a loop and each run of a thread. It examines
    /// the records of the programs, for example in a [`Journal`]. `Err` ends the run with a
    /// [`Failure`].
    pub fn check(&mut self, name: &str, check: impl FnMut() -> Result<(), String> + 'static) {
        self.checks.push((name.to_owned(), Box::new(check)));
    }

    /// Checks that no connection has input, or an end of its input, that its program has not read
    /// for longer than this. Also checks that no connection waits longer to be accepted. For
    /// programs that never stop reading and accepting. This finds a loop that loses an event of the
    /// poll.
    pub fn check_reads(&mut self, within: Duration) {
        self.driver.longest_unread = Some(crate::clock::nanos(within));
    }

    /// Sets how long a program may run without a wait, in real time. A program that takes longer is
    /// stuck in something that the simulation does not control, for example in a lock, and the run
    /// fails with the name of its thread. The default is 30 seconds.
    pub fn turn_timeout(&mut self, time: Duration) -> &mut Self {
        self.shared.turns.set_longest(time);
        self
    }

    /// Returns the time since the beginning.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.shared.lock().now())
    }

    /// Runs for a time.
    ///
    /// # Errors
    /// [`Failure`] for a failed check, a panic of a program, or a violation of an invariant of the
    /// crate.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.shared.lock().now().saturating_add(crate::clock::nanos(time));
        self.run(end, |_| false).map(drop)
    }

    /// Runs until `condition` holds: it must hold *eventually*. It is called after each turn of a
    /// loop and each run of a thread. After [`heal`](Simulation::heal), this checks that the
    /// programs recover.
    ///
    /// # Errors
    /// The errors of [`run_for`](Simulation::run_for), and a failure if the condition does not hold
    /// `within` this time.
    #[doc(alias = "eventually")]
    pub fn run_until(
        &mut self,
        what: &str,
        within: Duration,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), Failure> {
        self.check_failure()?;
        let end = self.shared.lock().now().saturating_add(crate::clock::nanos(within));
        if condition() || self.run(end, |_| condition())? {
            return Ok(());
        }
        Err(self.fail(format!("not within {within:?}: {what}")))
    }

    /// Runs until the program of a node has returned.
    ///
    /// # Errors
    /// The errors of [`run_for`](Simulation::run_for), the error of the program, and a failure if
    /// it does not return `within` this time.
    pub fn run_until_ended(&mut self, node: NodeId, within: Duration) -> Result<(), Failure> {
        let result = self.programs[node.0].result.clone();
        let has_ended = move || result.lock().is_some();
        self.run_until("the program returns", within, has_ended)?;
        let error = match &*self.programs[node.0].result.lock() {
            Some(Err(error)) => format!("the program has failed: {error:#}"),
            _ => return Ok(()),
        };
        Err(self.fail(error))
    }

    fn run(&mut self, end: u64, mut until: impl FnMut(&SimulationDriver) -> bool) -> Result<bool, Failure> {
        self.check_failure()?;
        loop {
            match self.driver.step(end) {
                Ok(driver::Stepped::Ran) => {}
                Ok(driver::Stepped::Idle) => return Ok(false),
                Ok(driver::Stepped::Restart(node)) => {
                    self.restart(NodeId(node));
                    continue;
                }
                Err(message) => return Err(self.fail(message)),
            }
            for at in 0..self.checks.len() {
                if let Err(message) = (self.checks[at].1)() {
                    let message = format!("{}: {message}", self.checks[at].0);
                    return Err(self.fail(message));
                }
            }
            if until(&self.driver) {
                return Ok(true);
            }
        }
    }

    /// # Errors
    /// The failure of the simulation, if it has failed.
    fn check_failure(&mut self) -> Result<(), Failure> {
        self.is_unreported = false;
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Ends the simulation with a failure that a scenario has found, and returns the failure.
    pub fn fail(&mut self, message: impl Into<String>) -> Failure {
        let message = message.into();
        // A run whose thread is stuck takes long, and leaves the thread behind. It is not repeated.
        let replay = if self.shared.turns.is_over() { None } else { self.replay().map(Box::new) };
        let program_errors = self.program_errors();
        let world = self.shared.lock();
        let failure = Failure {
            seed: self.seed,
            message,
            program_errors,
            at: Duration::from_nanos(world.now()),
            happened: world.faults.happened.clone(),
            last_events: world.trace.last().into(),
            replay,
            is_explored: false,
        };
        drop(world);
        self.failure = Some(failure.clone());
        failure
    }

    /// Describes the errors of all programs that have returned, including spawned ones.
    fn program_errors(&self) -> Box<[String]> {
        let first = self.programs.iter().map(|program| &program.result).enumerate();
        let spawned = self.spawned.iter().map(|(node, result)| (*node, result));
        let error = |(node, result): (usize, &ProgramResult)| {
            let name = self.shared.lock().nodes[node].name.clone();
            let result = result.lock();
            let error = result.as_ref()?.as_ref().err()?;
            Some(format!("a program of node {name} has failed: {error:#}"))
        };
        first.chain(spawned).filter_map(error).collect()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("elapsed", &self.elapsed())
            .finish_non_exhaustive()
    }
}

/// The counters of [`sometimes`].
type Counters = BTreeMap<&'static str, u64>;
