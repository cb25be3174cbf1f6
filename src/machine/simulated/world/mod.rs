//! The state of all machines, and the queue of events.
//!
//! Time advances to the time of the next event. Events at one instant run in an order that the seed
//! decides. While a loop or a thread runs, its clock readings and turns cost a little time, so a
//! program that measures time sees it pass, and no event happens in between.
//!
//! Modules: `node`, `poll` (readiness), `sockets`, `stream` and `datagrams` (their state),
//! `connect`, `tcp`, `close` and `udp` (their calls), `link` and `arrival` (the network),
//! `disk`, `waiting_threads`, `strike` (faults from outside).

mod arrival;
mod close;
mod connect;
mod datagrams;
#[cfg(feature = "durable")]
mod disk;
mod link;
mod node;
mod poll;
mod sockets;
mod stream;
mod strike;
mod tcp;
mod udp;
mod waiting_threads;

pub(crate) use link::LinkSettings;
#[cfg(feature = "durable")]
pub(in crate::machine::simulated) use link::retransmission;
pub(crate) use poll::{SimulatedPoll, SimulatedWaker};

use super::{
    LoopRun, Machine,
    fault::{Fault, FaultState, Faults},
    seeds::derive,
    trace::{Happening, Trace},
};
use datagrams::Flight;
use link::Links;
pub(crate) use node::Node;
use poll::PollState;
use sockets::Sockets;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};
use waiting_threads::ThreadState;

/// The time that a reading of the clock takes, in nanoseconds.
const CLOCK_READING: u64 = 25;

/// The number of the first loop of a simulation. Loops of the process never have such numbers.
const FIRST_LOOP_ID: u32 = 1 << 31;

/// Something that happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::machine::simulated) enum Action {
    /// A loop may run.
    Loop {
        index: usize,
        ticket: u64,
    },
    /// A thread may run.
    Thread {
        index: usize,
        ticket: u64,
    },
    /// The head of a socket's output arrives at its peer.
    Arrive(usize),
    /// The peer has taken bytes of a socket's output.
    Acknowledged {
        socket: usize,
        bytes: usize,
    },
    /// A datagram arrives.
    Datagram(usize),
    Edge(usize),
    /// A request for a connection arrives, or is sent again.
    Connect {
        socket: usize,
        attempt: u32,
    },
    /// A fault that the driver brings about.
    Strike,
    /// A node that was killed starts again, unless it has done so.
    Restart {
        node: usize,
        life: u32,
    },
}

/// What the driver does next.
pub(crate) enum Step {
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

#[derive(Default)]
pub(super) struct LoopState {
    pub(super) node: usize,
    pub(super) ticket: u64,
    pub(super) due: Option<u64>,
}

pub(crate) struct World {
    now: u64,
    /// Counts all entries of the queue, and so breaks ties of the drawn order.
    entered: u64,
    queue: BinaryHeap<Reverse<(u64, u32, u64, Action)>>,
    pub(crate) nodes: Vec<Node>,
    polls: Vec<PollState>,
    registering: Option<usize>,
    sockets: Sockets,
    threads: Vec<ThreadState>,
    loops: Vec<LoopState>,
    started: Vec<StartedLoop>,
    links: Links,
    /// Datagrams under way.
    flights: slab::Slab<Flight>,
    pub(crate) faults: FaultState,
    /// Draws the order of events at one instant.
    order: fastrand::Rng,
    seeds: fastrand::Rng,
    pub(crate) trace: Trace,
    loop_ids: u32,
    /// States that programs have reached, and how often.
    pub(crate) sometimes: BTreeMap<&'static str, u64>,
    /// Events that were taken from the queue.
    pub(crate) events: u64,
}

impl World {
    pub(in crate::machine::simulated) fn new(seed: u64, faults: Faults) -> Self {
        let stream = |name: &str| fastrand::Rng::with_seed(derive(seed, name));
        World {
            now: 0,
            entered: 0,
            queue: BinaryHeap::new(),
            nodes: Vec::new(),
            polls: Vec::new(),
            registering: None,
            sockets: Sockets::default(),
            threads: Vec::new(),
            loops: Vec::new(),
            started: Vec::new(),
            links: Links::new(stream("links")),
            flights: slab::Slab::new(),
            faults: FaultState::new(seed, faults),
            order: stream("order"),
            seeds: stream("seeds"),
            trace: Trace::default(),
            loop_ids: FIRST_LOOP_ID,
            sometimes: BTreeMap::new(),
            events: 0,
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

    pub(super) fn schedule(&mut self, at: u64, action: Action) {
        self.entered += 1;
        let order = self.order.u32(..);
        self.queue.push(Reverse((at.max(self.now), order, self.entered, action)));
    }

    /// Restarts a node that is down after a time.
    pub(crate) fn schedule_restart(&mut self, node: usize, after: u64) {
        let life = self.nodes[node].life;
        self.schedule(self.now.saturating_add(after), Action::Restart { node, life });
    }

    pub(crate) fn schedule_strike(&mut self, at: u64) {
        self.schedule(at, Action::Strike);
    }

    /// Lets a loop run at `at`, unless it runs earlier.
    pub(crate) fn schedule_loop(&mut self, index: usize, at: u64) {
        let at = at.max(self.nodes[self.loops[index].node].stalled_until).max(self.now);
        let state = &mut self.loops[index];
        if state.due.is_some_and(|due| due <= at) {
            return;
        }
        state.ticket += 1;
        state.due = Some(at);
        let ticket = state.ticket;
        self.schedule(at, Action::Loop { index, ticket });
    }

    pub(in crate::machine::simulated) fn start_loop(&mut self, machine: Machine, make: MakeLoop) {
        self.started.push(StartedLoop { machine, make });
    }

    pub(crate) fn take_started(&mut self) -> Vec<StartedLoop> {
        std::mem::take(&mut self.started)
    }

    /// Adds a loop that runs on the node, and returns its index.
    pub(crate) fn add_loop(&mut self, node: usize) -> usize {
        self.loops.push(LoopState { node, ..LoopState::default() });
        self.loops.len() - 1
    }

    pub(crate) fn own_poll(&mut self, poll: usize, owner: usize) {
        self.polls[poll].owner = Some(owner);
        if !self.polls[poll].ready.is_empty() || self.polls[poll].woken {
            self.poll_changed(poll);
        }
    }

    /// Removes the next thing to do before `end`, and advances the time to it.
    pub(crate) fn next_step(&mut self, end: u64) -> Step {
        loop {
            match self.queue.peek() {
                Some(Reverse((at, ..))) if *at <= end => {}
                _ => {
                    self.now = self.now.max(end);
                    return Step::Idle;
                }
            }
            let Some(Reverse((at, _, _, action))) = self.queue.pop() else { return Step::Idle };
            self.now = self.now.max(at);
            self.events += 1;
            match action {
                Action::Loop { index, ticket } if self.loops[index].ticket == ticket => {
                    let node = &self.nodes[self.loops[index].node];
                    if node.stalled_until > self.now {
                        let until = node.stalled_until;
                        self.loops[index].due = None;
                        self.schedule_loop(index, until);
                        continue;
                    }
                    self.loops[index].due = None;
                    return Step::Loop(index);
                }
                Action::Thread { index, ticket } if self.threads[index].ticket == ticket => {
                    let until = self.nodes[self.threads[index].node].stalled_until;
                    if until > self.now {
                        self.schedule(until, action);
                        continue;
                    }
                    return Step::Thread(index);
                }
                Action::Loop { .. } | Action::Thread { .. } => {}
                Action::Arrive(socket) => self.arrive(socket),
                Action::Acknowledged { socket, bytes } => self.acknowledged(socket, bytes),
                Action::Datagram(index) => self.datagram_arrives(index),
                Action::Edge(socket) => self.edge(socket),
                Action::Connect { socket, attempt } => self.connect_arrives(socket, attempt),
                Action::Strike => return Step::Strike,
                Action::Restart { node, life } if self.nodes[node].life == life => {
                    return Step::Restart(node);
                }
                Action::Restart { .. } => {}
            }
        }
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
        self.trace.note(self.now, what, node, a, b);
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        self.order.shuffle(items);
    }

    pub(crate) fn draw(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.order.u64(range)
    }
}
