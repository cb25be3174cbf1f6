//! The driver of a simulation: runs loops and threads in the order of the world's queue.

use super::Running;
use crate::machine::simulated::{
    Fault, Happening, Next, PollId, Polled, ReadyEvent, Shared, StartedLoop, World, WorldStep,
};
use std::{io, sync::Arc};

/// Turns without a sleep after which a loop counts as spinning.
const SPINS: u32 = 200_000;

pub(super) struct SimulationDriver {
    shared: Arc<Shared>,
    loops: Vec<Option<Running>>,
    events: Vec<ReadyEvent>,
    /// The loop whose wakeup is checked next. One is checked after each event.
    checked: usize,
    /// How long a socket may have unread input, if that is checked. In nanoseconds.
    pub(super) longest_unread: Option<u64>,
}

/// What a step has done.
pub(super) enum Stepped {
    Ran,
    /// Nothing happens before the given end.
    Idle,
    /// A node that was killed is to be started.
    Restart(usize),
}

impl SimulationDriver {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.lock().schedule_strike();
        SimulationDriver {
            shared: shared.clone(),
            loops: Vec::new(),
            events: Vec::new(),
            checked: 0,
            longest_unread: None,
        }
    }

    /// Runs the next loop or thread that is due before `end`.
    ///
    /// # Errors
    /// The message of a panic or of a violation, or the name of a thread that is stuck.
    pub(super) fn step(&mut self, end: u64) -> Result<Stepped, String> {
        let mut world = self.shared.lock();
        if let Some(started) = world.take_started() {
            drop(world);
            self.make_loops(started);
            world = self.shared.lock();
        }
        let step = world.next_step(end);
        match step {
            WorldStep::Idle => return Ok(Stepped::Idle),
            WorldStep::Restart(node) => return Ok(Stepped::Restart(node)),
            WorldStep::Strike => {
                drop(world);
                self.check_reads()?;
                self.strike()?;
                return Ok(Stepped::Ran);
            }
            WorldStep::Thread(index) => {
                world.note(Happening::ThreadRan, usize::MAX, index as u64, 0);
                drop(world);
                self.shared.run_thread(index)?;
            }
            WorldStep::Loop(index) => {
                drop(world);
                self.turn(index)?;
            }
        }
        let mut world = self.shared.lock();
        if let Some((node, message)) = world.take_panic() {
            return Err(format!("a thread of node {node} has panicked: {message}"));
        }
        world.check_remains();
        if let Some(violation) = world.take_violation() {
            return Err(violation);
        }
        self.checked = if self.checked + 1 < self.loops.len() { self.checked + 1 } else { 0 };
        // A thread that is suspended between its mail and its wakeup wakes the loop later.
        if let Some(Some(running)) = self.loops.get(self.checked)
            && world.preempted == 0
            && let Some(violation) = running.body.lost_wakeup(world.runs_next(self.checked))
        {
            return Err(format!("{}: {violation}", running.body.name()));
        }
        Ok(Stepped::Ran)
    }

    /// Makes the loops that programs have started.
    fn make_loops(&mut self, started: Vec<StartedLoop>) {
        for started in started {
            let node = started.machine.node();
            let entered = started.machine.enter();
            let mut body = (started.make)();
            let index = {
                let mut world = self.shared.lock();
                let index = world.add_loop(node);
                world.note(Happening::LoopStarted, node, index as u64, 0);
                if let Some(poll) = body.poll() {
                    world.own_poll(poll, index);
                }
                index
            };
            let next = body.begin();
            drop(entered);
            if self.loops.len() <= index {
                self.loops.resize_with(index + 1, || None);
            }
            self.loops[index] =
                Some(Running { node, body, machine: started.machine, wait: next, turns_awake: 0 });
            self.plan(index, next);
        }
    }

    /// Schedules the next turn of a loop.
    fn plan(&mut self, index: usize, next: Next) {
        let Some(running) = &mut self.loops[index] else { return };
        running.wait = next;
        let mut world = self.shared.lock();
        let now = world.now();
        if matches!(next, Next::After(_) | Next::Event) && world.returns_early() {
            world.schedule_loop(index, now + 1_000);
        }
        match next {
            Next::Now => world.schedule_loop(index, now),
            Next::After(time) | Next::Rest(time) => world.schedule_loop(index, now.saturating_add(time)),
            Next::Event => {}
            Next::Ended => {
                world.remove_loop(index);
                drop(world);
                if let Some(ended) = self.loops[index].take() {
                    let _entered = ended.machine.enter();
                    drop(ended.body);
                }
                return;
            }
        }
        if let Some(poll) = running.body.poll() {
            world.own_poll(poll, index);
        }
    }

    fn turn(&mut self, index: usize) -> Result<(), String> {
        let Some(running) = &mut self.loops[index] else { return Ok(()) };
        let entered = running.machine.enter();
        let in_turn = self.shared.loop_turn.begin(running.node);
        let next = if matches!(running.wait, Next::Rest(_)) {
            running.body.rested()
        } else {
            let polled = {
                let mut world = self.shared.lock();
                let poll = running.body.poll();
                let polled = poll_of(&mut world, poll, &mut self.events);
                world.note(Happening::Turn, running.node, index as u64, self.events.len() as u64);
                polled
            };
            running.body.turn(polled, &self.events)
        };
        {
            let mut world = self.shared.lock();
            let cost = world.draw(200..2_000);
            world.spend(cost);
            world.maybe_slow_turn(running.node);
            if next == Next::Ended {
                world.note(Happening::LoopEnded, running.node, index as u64, 0);
            }
        }
        let violation = running.body.check();
        drop(in_turn);
        drop(entered);
        running.turns_awake = if next == Next::Now { running.turns_awake + 1 } else { 0 };
        if running.turns_awake > SPINS {
            return Err(format!("{}: {SPINS} turns without a sleep", running.body.name()));
        }
        if let Some(violation) = violation {
            return Err(format!("{}: {violation}", running.body.name()));
        }
        self.plan(index, next);
        Ok(())
    }

    fn check_reads(&self) -> Result<(), String> {
        let Some(limit) = self.longest_unread else { return Ok(()) };
        let world = self.shared.lock();
        let Some((node, id)) = world.unread_for(limit) else { return Ok(()) };
        Err(format!("node {}: socket {id} has unread input for {limit} ns", world.nodes[node].name))
    }

    /// Brings about faults of nodes and links. Each kind is drawn at each strike, so leaving one
    /// out does not change which opportunities the others have.
    fn strike(&mut self) -> Result<(), String> {
        self.shared.lock().schedule_strike();
        if self.shared.lock().nodes.is_empty() {
            return Ok(());
        }
        for (fault, loses_power) in [(Fault::NodeLosesPower, true), (Fault::NodeKilled, false)] {
            let mut world = self.shared.lock();
            let Some(node) = world.struck(fault) else { continue };
            let was_up = world.nodes[node].is_up;
            // A killed node comes back after a while.
            let pause = world.faults.size(fault, 100_000_000..5_000_000_000);
            if !world.nodes[node].can_end(loses_power) {
                world.faults.take_back(fault);
                continue;
            }
            drop(world);
            self.end_node(node, loses_power)?;
            if was_up {
                self.shared.lock().schedule_restart(node, pause);
            }
        }
        self.shared.lock().strike_links();
        Ok(())
    }

    /// Ends the programs of a node. Does nothing if they have ended, unless the node loses the
    /// power that it still has.
    ///
    /// # Errors
    /// The name of a thread that does not end. No thread of the simulation has a turn from then on.
    pub(super) fn end_node(&mut self, node: usize, loses_power: bool) -> Result<(), String> {
        let (threads, started) = {
            let mut world = self.shared.lock();
            if !world.nodes[node].can_end(loses_power) {
                return Ok(());
            }
            world.kill_node(node, loses_power);
            (world.threads_of(node), world.take_started_on(node))
        };
        for never_made in started {
            let _entered = never_made.machine.enter();
            drop(never_made.make);
        }
        for index in 0..self.loops.len() {
            if self.loops[index].as_ref().is_some_and(|running| running.node == node)
                && let Some(killed) = self.loops[index].take()
            {
                self.shared.lock().remove_loop(index);
                let _entered = killed.machine.enter();
                killed.body.kill();
            }
        }
        for thread in threads {
            self.shared.unwind_thread(thread)?;
        }
        Ok(())
    }
}

/// Polls on behalf of a loop that was chosen to run.
fn poll_of(world: &mut World, poll: Option<PollId>, events: &mut Vec<ReadyEvent>) -> Polled {
    events.clear();
    let Some(poll) = poll else { return Polled::Nothing };
    if world.fails(Fault::PollFails) {
        // EBADF
        return Polled::Failed(io::Error::from_raw_os_error(9));
    }
    if world.fails(Fault::PollInterrupted) {
        world.take_events(poll, events);
        return Polled::Interrupted;
    }
    let is_woken = world.take_events(poll, events);
    if !events.is_empty() {
        Polled::Events
    } else if is_woken {
        Polled::Woken
    } else {
        Polled::Nothing
    }
}
