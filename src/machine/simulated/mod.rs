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
//! Modules: `world` (the queue of events, the network and all sockets), `threads` (their waits),
//! `turns` (which thread runs), `watch` (turns of loops that do not end), `socket` (the handle that
//! transports use), `fault` and `faults` (their kinds and draws), `operation` (optional operations
//! of programs), `mask` (a list of both), `trace` (the events), `digest` (contents), `states` (a
//! count of different ones), `hop` (requests without sockets), `run` (a loop as the driver sees
//! it), `ids`, `seeds`.

mod clock;
mod digest;
mod fault;
mod faults;
#[cfg(feature = "durable")]
mod hop;
mod ids;
mod mask;
mod operation;
mod run;
mod seeds;
mod socket;
mod states;
mod threads;
mod trace;
mod turns;
mod watch;
mod world;

pub(crate) use clock::MachineClock;
pub(crate) use fault::{Fault, FaultRecord};
pub(crate) use faults::FaultSource;
#[cfg(feature = "durable")]
pub(crate) use hop::Hop;
pub(crate) use ids::PollId;
pub(crate) use mask::{Mask, Operation};
pub(crate) use run::{LoopRun, Next, Polled, ReadyEvent};
pub(crate) use socket::SimulatedSocket;
pub(crate) use states::States;
pub(crate) use threads::{
    is_thread, notify, pause, race_point_at_lock, resume_killed, resume_unwinding, stop_if_killed, wait,
};
pub(crate) use trace::{Happening, Record};
pub(crate) use world::{
    BindOptions, Condition, LinkSettings, MakeLoop, SimulatedPoll, SimulatedWaker, StartedLoop, World,
    WorldStep,
};

use crate::machine::system_mutex::SystemMutex;
use std::{
    cell::{Cell, RefCell},
    io,
    marker::PhantomData,
    net::IpAddr,
    sync::{
        Arc, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

thread_local! {
    static CURRENT: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// The world and the state that its threads share.
pub(crate) struct Shared {
    world: SystemMutex<World>,
    pub(crate) turns: turns::Turns,
    pub(crate) loop_turn: watch::LoopTurn,
    /// The instant that is the time zero of the world.
    origin: std::time::Instant,
}

impl Shared {
    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin, which no result depends on")]
    pub(crate) fn new(seed: u64, faults: FaultSource) -> io::Result<Arc<Self>> {
        EXISTS.store(true, Ordering::Relaxed);
        if REGISTERED.get().is_none() {
            let _ = REGISTERED.set(mio::Poll::new()?);
        }
        let shared = Arc::new(Shared {
            world: SystemMutex::new(World::new(seed, faults)),
            turns: turns::Turns::default(),
            loop_turn: watch::LoopTurn::default(),
            origin: std::time::Instant::now(),
        });
        watch::watch(&shared);
        Ok(shared)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    /// Returns the registry that mio passes to each source that is registered.
    pub(crate) fn registry(&self) -> &'static mio::Registry {
        REGISTERED.get().expect("the first simulation has opened a poll").registry()
    }
}

/// Only the registry of this poll is used. All simulations share it, so a program that leaks a
/// handle of a simulation leaks no descriptor.
static REGISTERED: OnceLock<mio::Poll> = OnceLock::new();

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
        self.lives_in(&self.lock())
    }

    fn lives_in(&self, world: &World) -> bool {
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
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] if the process of the loop was killed, also by the end of
    /// its simulation. A program may keep a loop in a `static`, beyond the life of its node.
    pub(crate) fn start_loop(&self, make: MakeLoop) -> io::Result<()> {
        let mut world = self.lock();
        if !self.lives_in(&world) {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the simulated process of the loop was killed",
            ));
        }
        world.start_loop(self.clone(), make);
        Ok(())
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
    pub(crate) fn enter(&self) -> EnteredMachine {
        EnteredMachine(CURRENT.with_borrow_mut(|current| current.replace(self.clone())))
    }
}

/// Restores the machine of the thread when dropped.
pub(crate) struct EnteredMachine(Option<Machine>);

impl Drop for EnteredMachine {
    fn drop(&mut self) {
        let before = self.0.take();
        let _ = CURRENT.try_with(|current| *current.borrow_mut() = before);
    }
}

/// Whether the process has ever had a simulation. Programs on the operating system pay for this
/// load only.
static EXISTS: AtomicBool = AtomicBool::new(false);

/// Returns the machine that the calling thread works for. `None` for the operating system.
#[inline]
pub(crate) fn current() -> Option<Machine> {
    if EXISTS.load(Ordering::Relaxed) { current_of_thread() } else { None }
}

#[cold]
fn current_of_thread() -> Option<Machine> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Lets another thread run where the caller races with it, if that is drawn and the caller holds no
/// lock.
#[inline]
pub(crate) fn race_point() {
    if EXISTS.load(Ordering::Relaxed) {
        threads::race_point();
    }
}

/// Returns whether a simulation was created in this process.
#[inline]
pub(crate) fn exists() -> bool {
    EXISTS.load(Ordering::Relaxed)
}

thread_local! {
    /// The number of [`HeldLock`]s of the thread.
    static HELD_LOCKS: Cell<u32> = const { Cell::new(0) };
}

/// A lock that the calling thread holds, until this is dropped.
pub(crate) struct HeldLock(PhantomData<*const ()>);

impl HeldLock {
    #[inline]
    pub(crate) fn new() -> Self {
        HELD_LOCKS.set(HELD_LOCKS.get() + 1);
        HeldLock(PhantomData)
    }
}

impl Drop for HeldLock {
    #[inline]
    fn drop(&mut self) {
        HELD_LOCKS.set(HELD_LOCKS.get() - 1);
    }
}

fn holds_a_lock() -> bool {
    HELD_LOCKS.get() > 0
}

/// Returns whether the calling thread is the driver of a simulation, in a call of a loop.
pub(crate) fn is_driver() -> bool {
    EXISTS.load(Ordering::Relaxed)
        && CURRENT.try_with(|current| current.borrow().is_some()).unwrap_or(false)
        && !is_thread()
}

thread_local! {
    /// The simulations that the thread has made and not dropped.
    static SIMULATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Marks the calling thread as one that runs a simulation, until this is dropped. It is not `Send`.
pub(crate) struct RunsSimulation(PhantomData<*const ()>);

impl RunsSimulation {
    pub(crate) fn new() -> Self {
        SIMULATIONS.set(SIMULATIONS.get() + 1);
        RunsSimulation(PhantomData)
    }
}

impl Drop for RunsSimulation {
    fn drop(&mut self) {
        let _ = SIMULATIONS.try_with(|simulations| simulations.set(simulations.get() - 1));
    }
}

/// Returns whether the calling thread runs a simulation, which stands still while the thread waits.
pub(crate) fn runs_simulation() -> bool {
    EXISTS.load(Ordering::Relaxed) && SIMULATIONS.try_with(Cell::get).unwrap_or(0) > 0
}

/// Returns whether a loop with this number is one of a simulation that the calling thread runs.
pub(crate) fn runs_loop(event_loop: u32) -> bool {
    event_loop >= world::FIRST_LOOP_ID && runs_simulation() && !is_thread()
}

/// Notes that a channel has dropped output. What its socket refused before is not written again.
#[cold]
pub(crate) fn note_dropped_output() {
    let _ = with_world(|_, world| world.note_dropped_output());
}

/// Notes a new channel, whose key in its loop must not have been that of another one.
pub(crate) fn note_channel(event_loop: u32, index: u32, generation: u32) {
    let _ = with_world(|_, world| world.note_channel(event_loop, index, generation));
}

/// Forgets the channels of a loop that has ended.
pub(crate) fn forget_channels(event_loop: u32) {
    let _ = with_world(|_, world| world.forget_channels(event_loop));
}

/// Reports a violation of an invariant. The run of the simulation fails.
#[cold]
pub(crate) fn violate(violation: impl FnOnce() -> String) {
    let _ = with_world(|_, world| world.violate(violation));
}

/// Draws whether the calling program performs an optional operation. `false` outside of a
/// simulation.
pub(crate) fn chance(name: &'static str, per_million: u32) -> bool {
    with_world(|machine, world| world.chance(machine.node, name, per_million)).unwrap_or(false)
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
