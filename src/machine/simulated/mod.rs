//! Simulated machines: nodes, their threads, and the network between them, in virtual time.
//!
//! A [`World`] holds the state of all nodes behind one lock. One thread at a time runs: the driver,
//! which is the thread of the simulation and runs all loops, or a thread of a node, which runs
//! until it blocks. So the lock is never contended, and the order of all events is decided by the
//! seed of the world.
//!
//! Invariants: a thread that works for a node has a [`Machine`] in its thread-local [`current`].
//! Time advances in the world only. Nothing is decided by an address, a hash map or the real clock.
//!
//! Modules: `world` (the queue of events, the network and all sockets), `threads` (whose turn it
//! is), `socket` (the handle that transports use), `fault` (what fails, and when), `trace` (what
//! has happened), `run` (a loop as the driver sees it), `seeds`.

mod clock;
mod fault;
mod run;
mod seeds;
mod socket;
mod threads;
mod trace;
mod world;

pub(crate) use clock::MachineClock;
pub(crate) use fault::{Fault, FaultRecord, Faults};
pub(crate) use run::{LoopRun, Next, Polled, ReadyEvent};
pub(crate) use socket::SimulatedSocket;
pub(crate) use threads::{block, is_thread, notify, race_point};
pub(crate) use trace::{Happening, Record};
pub(crate) use world::{LinkSettings, MakeLoop, SimulatedPoll, SimulatedWaker, Step, World};

use std::{
    cell::RefCell,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

thread_local! {
    static CURRENT: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// The world and what its threads share.
pub(crate) struct Shared {
    world: Mutex<World>,
    pub(crate) threads: threads::Threads,
    /// Only its registry is used: mio passes one to each source that is registered.
    pub(crate) registry: mio::Poll,
    /// The instant that is the time zero of the world.
    origin: std::time::Instant,
}

impl Shared {
    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin, which no result depends on")]
    pub(crate) fn new(seed: u64, faults: Faults) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Shared {
            world: Mutex::new(World::new(seed, faults)),
            threads: threads::Threads::default(),
            registry: mio::Poll::new()?,
            origin: std::time::Instant::now(),
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One node of a simulation, as its threads and loops see it.
#[derive(Clone)]
pub(crate) struct Machine {
    shared: Arc<Shared>,
    node: usize,
    /// How often the node had been started when this life of it began.
    life: u32,
}

impl Machine {
    pub(crate) fn new(shared: &Arc<Shared>, node: usize) -> Self {
        let life = shared.lock().nodes[node].life;
        Machine { shared: shared.clone(), node, life }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.shared.lock()
    }

    pub(crate) fn node(&self) -> usize {
        self.node
    }

    /// Returns whether the node still lives the life in which this was made.
    pub(crate) fn is_alive(&self) -> bool {
        let world = self.lock();
        let node = &world.nodes[self.node];
        node.is_up && node.life == self.life
    }

    pub(crate) fn clock(&self) -> MachineClock {
        MachineClock::new(self.shared.clone(), self.node)
    }

    /// Draws the seed of a generator.
    pub(crate) fn seed(&self) -> u64 {
        self.lock().draw_seed()
    }

    /// Returns the number of a new loop.
    pub(crate) fn next_loop_id(&self) -> u32 {
        self.lock().next_loop_id()
    }

    /// Hands a loop to the driver, which makes it and runs it.
    pub(crate) fn start_loop(&self, make: MakeLoop) {
        self.lock().start_loop(self.clone(), make);
    }

    /// Starts a thread of the node. It runs when the scheduler chooses it.
    pub(crate) fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) {
        if self.is_alive() {
            threads::spawn(self.clone(), name, body);
        }
    }

    /// Resolves a name of the simulation: that of a node, or `localhost`.
    pub(crate) fn resolve(&self, host: &str) -> Option<IpAddr> {
        self.lock().resolve(host)
    }

    /// Makes this the machine of the calling thread until the result is dropped.
    pub(crate) fn enter(&self) -> Entered {
        Entered(CURRENT.with_borrow_mut(|current| current.replace(self.clone())))
    }
}

/// Restores the machine of the thread when dropped.
pub(crate) struct Entered(Option<Machine>);

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.0.take();
        let _ = CURRENT.try_with(|current| *current.borrow_mut() = before);
    }
}

/// Returns the machine that the calling thread works for. `None` for the operating system.
pub(crate) fn current() -> Option<Machine> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Returns whether the calling thread is the driver of a simulation, in a call of a loop.
pub(crate) fn is_driver() -> bool {
    CURRENT.try_with(|current| current.borrow().is_some()).unwrap_or(false) && !is_thread()
}

/// Calls `f` with the world of the calling thread's machine. `None` without one.
fn with_world<R>(f: impl FnOnce(&Machine, &mut World) -> R) -> Option<R> {
    let called = CURRENT.try_with(|current| {
        let current = current.borrow();
        let machine = current.as_ref()?;
        let mut world = machine.shared.lock();
        Some(f(machine, &mut world))
    });
    called.ok().flatten()
}
