//! The state of all machines, and the queue of events.
//!
//! Time advances to the time of the next event. Events at one instant run in an order that the seed
//! decides. While a loop or a thread runs, its clock readings and turns cost a little time, so a
//! program that measures time sees it pass. No event happens in between.
//!
//! Modules: `queue` and `alarm` (the order of events), `node`, `poll` (readiness), `unseen`
//! (readiness without an event), `sockets`, `ports`, `stream` and `datagrams` (their state),
//! `listen`, `connect`, `tcp`, `close` and `udp` (their calls), `link`, `arrival` and `retransmit`
//! (the network), `disk`, `waiting_threads`, `strike` (faults from outside), `checks`.

mod alarm;
mod arrival;
mod checks;
mod close;
mod connect;
mod datagrams;
#[cfg(feature = "durable")]
mod disk;
mod link;
mod listen;
#[cfg(test)]
mod loopback_tests;
mod node;
#[cfg(test)]
mod one_way_tests;
mod poll;
mod ports;
mod queue;
mod retransmit;
mod sockets;
mod stream;
mod strike;
mod tcp;
mod udp;
mod unseen;
mod waiting_threads;

pub(crate) use link::LinkSettings;
#[cfg(feature = "durable")]
pub(in crate::machine::simulated) use link::retransmission;
pub(crate) use poll::{SimulatedPoll, SimulatedWaker};
pub(crate) use ports::BindOptions;
pub(crate) use unseen::Unseen;
pub(crate) use waiting_threads::Condition;

use super::{
    Machine,
    fault::Fault,
    faults::{FaultSource, FaultState},
    ids::PollId,
    operation::Operations,
    run::LoopRun,
    seeds::derive,
    states::States,
    trace::{Happening, Record, Trace},
};
use datagrams::Flight;
use link::LinkTable;
pub(crate) use node::Node;
use poll::Polls;
use queue::{ActionQueue, LoopState, TimedAction, narrow};
use sockets::Sockets;
use std::collections::BTreeMap;
use strike::Strikes;
use waiting_threads::WaitingThreads;

/// The time that a reading of the clock takes, in nanoseconds.
const CLOCK_READING: u64 = 25;

/// The number of the first loop of a simulation. Loops of the process never have such numbers.
pub(in crate::machine::simulated) const FIRST_LOOP_ID: u32 = 1 << 31;

/// What the driver does next.
pub(crate) enum WorldStep {
    Loop(usize),
    Thread(usize),
    Strike,
    Restart(usize),
    /// Nothing is left to do before the given end.
    Idle,
}

/// Makes a loop on the driver's thread.
pub(crate) type MakeLoop = Box<dyn FnOnce() -> Box<dyn LoopRun> + Send>;

/// A loop that was started, until the driver has made it.
pub(crate) struct StartedLoop {
    pub(crate) machine: Machine,
    pub(crate) make: MakeLoop,
}

pub(crate) struct World {
    pub(crate) seed: u64,
    now: u64,
    queue: ActionQueue,
    pub(crate) nodes: Vec<Node>,
    polls: Polls,
    registering: Option<PollId>,
    sockets: Sockets,
    threads: WaitingThreads,
    loops: Vec<LoopState>,
    started: Vec<StartedLoop>,
    links: LinkTable,
    /// Datagrams under way.
    flights: slab::Slab<Flight>,
    pub(crate) faults: FaultState,
    pub(crate) operations: Operations,
    /// Draws the order of events at one instant.
    order: fastrand::Rng,
    seeds: fastrand::Rng,
    strikes: Strikes,
    pub(crate) trace: Trace,
    loop_ids: u32,
    /// The generation of the last channel in each slot, by loop.
    channels: BTreeMap<u32, BTreeMap<u32, u32>>,
    /// States that programs have reached, and how often.
    pub(crate) sometimes: BTreeMap<&'static str, u64>,
    /// The number of events, without outdated entries of the queue.
    pub(crate) events: u64,
    /// How many threads are suspended while they submit work to a loop.
    pub(crate) preempted: usize,
    pub(crate) states: States,
    /// The first violation of an invariant that was found in a call.
    violation: Option<String>,
    /// The node on which a thread or a loop has ended last, until its remains were checked.
    ended_on: Option<usize>,
    /// How often channels have dropped output that a write may have begun to send.
    pub(super) dropped_output: u64,
}

impl World {
    pub(in crate::machine::simulated) fn new(seed: u64, faults: FaultSource) -> Self {
        let stream = |name: &str| fastrand::Rng::with_seed(derive(seed, name));
        World {
            seed,
            now: 0,
            queue: ActionQueue::default(),
            nodes: Vec::new(),
            polls: Polls::default(),
            registering: None,
            sockets: Sockets::default(),
            threads: WaitingThreads::default(),
            loops: Vec::new(),
            started: Vec::new(),
            links: LinkTable::new(stream("links")),
            flights: slab::Slab::new(),
            faults: FaultState::new(seed, &faults),
            operations: Operations::new(seed, faults.only.as_ref()),
            order: stream("order"),
            seeds: stream("seeds"),
            strikes: Strikes::new(stream("strikes")),
            trace: Trace::default(),
            loop_ids: FIRST_LOOP_ID,
            channels: BTreeMap::new(),
            sometimes: BTreeMap::new(),
            events: 0,
            states: States::default(),
            violation: None,
            ended_on: None,
            dropped_output: 0,
            preempted: 0,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Lets time pass while a loop or a thread runs.
    pub(crate) fn spend(&mut self, time: u64) {
        self.now = self.now.saturating_add(time);
    }

    pub(in crate::machine::simulated) fn read_clock(&mut self, node: usize) -> u64 {
        self.spend(CLOCK_READING);
        self.nodes[node].local(self.now)
    }

    pub(in crate::machine::simulated) fn draw_seed(&mut self) -> u64 {
        self.seeds.u64(..)
    }

    pub(in crate::machine::simulated) fn next_loop_id(&mut self) -> u32 {
        self.loop_ids += 1;
        self.loop_ids
    }

    pub(crate) fn set_link(&mut self, settings: LinkSettings) {
        self.links.settings = settings;
    }

    // ---- the queue ------------------------------------------------------------------------------

    /// Restarts a node that is down after a time.
    pub(crate) fn schedule_restart(&mut self, node: usize, after: u64) {
        self.cancel_restart(node);
        let number = self.nodes[node].planned_restart;
        self.schedule(self.now.saturating_add(after), TimedAction::Restart { node: narrow(node), number });
    }

    /// Cancels the restart of a node that is planned.
    pub(crate) fn cancel_restart(&mut self, node: usize) {
        self.nodes[node].planned_restart += 1;
    }

    pub(in crate::machine::simulated) fn start_loop(&mut self, machine: Machine, make: MakeLoop) {
        self.started.push(StartedLoop { machine, make });
    }

    /// Takes the loops that were started, if there are any.
    pub(crate) fn take_started(&mut self) -> Option<Vec<StartedLoop>> {
        (!self.started.is_empty()).then(|| std::mem::take(&mut self.started))
    }

    /// Takes the loops that were started on a node.
    pub(crate) fn take_started_on(&mut self, node: usize) -> Vec<StartedLoop> {
        self.started.extract_if(.., |started| started.machine.node() == node).collect()
    }

    #[cfg(test)]
    pub(crate) fn started_loops(&self) -> usize {
        self.started.len()
    }

    /// Frees the memory of a world whose nodes have ended.
    pub(crate) fn free(&mut self) {
        self.queue.clear();
        self.sockets = Sockets::default();
        self.polls = Polls::default();
        self.flights = slab::Slab::new();
        self.channels = BTreeMap::new();
        self.trace.free();
        self.faults.happened = Vec::new();
    }

    /// Removes the next thing to do before `end`, and advances the time to it.
    pub(crate) fn next_step(&mut self, end: u64) -> WorldStep {
        while let Some((at, action)) = self.queue.pop(end) {
            self.now = self.now.max(at);
            if let Some(step) = self.perform(action) {
                return step;
            }
        }
        self.now = self.now.max(end);
        WorldStep::Idle
    }

    /// Performs an action of the world, or returns a step of the driver.
    #[inline]
    fn perform(&mut self, action: TimedAction) -> Option<WorldStep> {
        let step = match action {
            TimedAction::Loop(index) => Some(WorldStep::Loop(self.loop_comes_up(index)?)),
            TimedAction::Thread(index) => Some(WorldStep::Thread(self.thread_comes_up(index)?)),
            TimedAction::Strike => Some(WorldStep::Strike),
            TimedAction::Restart { node, number } => {
                let node = node as usize;
                Some(WorldStep::Restart((self.nodes[node].planned_restart == number).then_some(node)?))
            }
            _ => None,
        };
        self.events += 1;
        match action {
            TimedAction::Arrive(socket) => self.arrive(socket),
            TimedAction::Acknowledged { socket, bytes } => self.acknowledged(socket, bytes as usize),
            TimedAction::Datagram(index) => self.datagram_arrives(index as usize),
            TimedAction::Edge(socket) => self.late_edge(socket),
            TimedAction::Connect { socket, attempt } => self.connect_arrives(socket, attempt),
            TimedAction::Connected { socket, server } => self.answer_arrives(socket, server),
            TimedAction::Established { socket, attempt } => self.confirmation_arrives(socket, attempt),
            TimedAction::Reset(socket) => self.reset_arrives(socket),
            TimedAction::Retransmit(socket) => self.retransmit(socket),
            TimedAction::EndAcknowledged(socket) => self.end_acknowledged(socket),
            TimedAction::Refused(index) => self.datagram_refused(index as usize),
            _ => {}
        }
        step
    }

    // ---- faults and the trace -------------------------------------------------------------------

    /// Returns whether the fault happens at this opportunity.
    pub(crate) fn fails(&mut self, fault: Fault) -> bool {
        if !self.faults.happens(fault, self.now) {
            return false;
        }
        self.note(Happening::Fault, usize::MAX, fault as u64, 0);
        true
    }

    pub(crate) fn note(&mut self, what: Happening, node: usize, a: u64, b: u64) {
        self.note_contents(what, node, a, b, 0);
    }

    pub(crate) fn note_contents(&mut self, what: Happening, node: usize, a: u64, b: u64, contents: u64) {
        self.trace.note(Record { at: self.now, what, node, a, b, contents });
    }

    /// Draws whether a program of the node performs an optional operation.
    pub(crate) fn chance(&mut self, node: usize, name: &'static str, per_million: u32) -> bool {
        let (happens, number) = self.operations.draw(node, name, per_million);
        if happens {
            self.note(Happening::Operation, node, number, 0);
        }
        happens
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        self.order.shuffle(items);
    }

    pub(crate) fn draw(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.order.u64(range)
    }
}
