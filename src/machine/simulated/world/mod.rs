//! The state of all machines, and the queue of events.
//!
//! Time advances to the time of the next event. Events at one instant run in an order that the seed
//! decides. While a loop or a thread runs, its clock readings and turns cost a little time, so a
//! program that measures time sees it pass, and no event happens in between.
//!
//! Modules: `poll` (readiness), `sockets`, `stream`, `tcp`, `datagrams` and `udp` (sockets and what
//! their calls do), `link` (the network), `waiting_threads`, `strike` (faults from outside).

mod datagrams;
mod link;
mod poll;
mod sockets;
mod stream;
mod strike;
mod tcp;
mod udp;
mod waiting_threads;

pub(crate) use link::LinkSettings;
pub(crate) use poll::{SimulatedPoll, SimulatedWaker};

use super::{
    LoopRun, Machine,
    fault::{Fault, FaultState, Faults},
    seeds::derive,
    trace::{Happening, Trace},
};
use datagrams::Flight;
use link::Links;
use poll::PollState;
use sockets::Sockets;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    net::IpAddr,
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
    /// A check, or work of the program that runs the simulation.
    Wake(u64),
}

/// What the driver does next.
pub(crate) enum Step {
    Loop(usize),
    Thread(usize),
    Strike,
    Wake(u64),
    /// Nothing is left to do before the given end.
    Idle,
}

/// A node: its addresses and its clock.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) is_up: bool,
    pub(crate) life: u32,
    /// How far the clock has jumped ahead, in nanoseconds.
    pub(super) ahead: u64,
    /// How much faster the clock runs than that of the world, in millionths, and since when.
    pub(super) drift: u64,
    pub(super) drifts_since: u64,
    /// How far the time of day is shifted, in nanoseconds.
    pub(crate) wall_shift: i64,
    /// The node does not run before this time.
    pub(super) stalled_until: u64,
    /// Accepting and opening sockets fails until this time.
    pub(super) out_of_descriptors_until: u64,
    pub(super) next_port: u16,
}

impl Node {
    /// Converts a time of the world to that of the node's clock.
    pub(super) fn local(&self, time: u64) -> u64 {
        let drift = time.saturating_sub(self.drifts_since) / 1_000_000 * self.drift;
        time.saturating_add(self.ahead).saturating_add(drift)
    }
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

    pub(crate) fn add_node(&mut self, name: &str, address: IpAddr) -> usize {
        self.nodes.push(Node {
            name: name.to_owned(),
            address,
            is_up: true,
            life: 0,
            ahead: 0,
            drift: 0,
            drifts_since: 0,
            wall_shift: 0,
            stalled_until: 0,
            out_of_descriptors_until: 0,
            next_port: 32_768,
        });
        self.nodes.len() - 1
    }

    pub(in crate::machine::simulated) fn resolve(&self, host: &str) -> Option<IpAddr> {
        if host == "localhost" {
            return Some(IpAddr::from([127, 0, 0, 1]));
        }
        self.nodes.iter().find(|node| node.name == host).map(|node| node.address)
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

    pub(crate) fn schedule_wake(&mut self, at: u64, key: u64) {
        self.schedule(at, Action::Wake(key));
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
                    return Step::Thread(index);
                }
                Action::Loop { .. } | Action::Thread { .. } => {}
                Action::Arrive(socket) => self.arrive(socket),
                Action::Acknowledged { socket, bytes } => self.acknowledged(socket, bytes),
                Action::Datagram(index) => self.datagram_arrives(index),
                Action::Edge(socket) => self.edge(socket),
                Action::Connect { socket, attempt } => self.connect_arrives(socket, attempt),
                Action::Strike => return Step::Strike,
                Action::Wake(key) => return Step::Wake(key),
            }
        }
    }

    // ---- faults and the trace -------------------------------------------------------------------

    /// Returns whether the fault happens at this opportunity.
    pub(super) fn fails(&mut self, fault: Fault) -> bool {
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

    // ---- nodes ----------------------------------------------------------------------------------

    /// Ends the process of a node. Its sockets vanish without a word if the machine lost its power,
    /// and are closed by its kernel otherwise.
    pub(crate) fn kill_node(&mut self, node: usize, loses_power: bool) {
        self.note(Happening::Killed, node, u64::from(loses_power), 0);
        let sockets: Vec<usize> = self.sockets.of_node(node).collect();
        for socket in sockets {
            if loses_power { self.sockets.remove(socket) } else { self.close(socket) }
        }
        let state = &mut self.nodes[node];
        state.is_up = false;
        state.life += 1;
        for index in 0..self.loops.len() {
            if self.loops[index].node == node {
                self.loops[index].ticket += 1;
            }
        }
    }

    pub(crate) fn restart_node(&mut self, node: usize) {
        self.note(Happening::Restarted, node, 0, 0);
        self.nodes[node].is_up = true;
    }

    pub(crate) fn stall(&mut self, node: usize, time: u64) {
        self.note(Happening::Stalled, node, time, 0);
        self.nodes[node].stalled_until = self.now.saturating_add(time);
    }

    pub(crate) fn jump_clock(&mut self, node: usize, by: u64) {
        self.note(Happening::ClockJumped, node, by, 0);
        self.nodes[node].ahead = self.nodes[node].ahead.saturating_add(by);
        // A timer of the kernel follows the clock, so sleeping loops wake up.
        for index in 0..self.loops.len() {
            if self.loops[index].node == node && self.loops[index].due.is_some() {
                self.loops[index].due = None;
                self.schedule_loop(index, self.now);
            }
        }
    }

    /// Sets by how much a clock is faster than the world's from now on: `faster` millionths.
    pub(crate) fn drift_clock(&mut self, node: usize, faster: u64) {
        self.note(Happening::ClockDrifts, node, faster, 0);
        let now = self.now;
        let state = &mut self.nodes[node];
        // The clock continues from where it is.
        state.ahead = state.local(now).saturating_sub(now);
        (state.drift, state.drifts_since) = (faster, now);
    }

    pub(crate) fn shift_wall_time(&mut self, node: usize, by: i64) {
        self.note(Happening::WallTimeShifted, node, by.unsigned_abs(), u64::from(by < 0));
        self.nodes[node].wall_shift = self.nodes[node].wall_shift.saturating_add(by);
    }

    pub(crate) fn exhaust_descriptors(&mut self, node: usize, time: u64) {
        self.note(Happening::OutOfDescriptors, node, time, 0);
        self.nodes[node].out_of_descriptors_until = self.now.saturating_add(time);
    }
}
