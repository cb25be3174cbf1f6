//! The threads of simulated nodes, and the waits of threads and loops.
//!
//! A thread is a real one, because programs block in `main` and in workers. It runs only while it
//! has its turn (`turns`), and gives the turn back in a wait of this crate, and at its end.
//!
//! A thread whose node was killed is unwound from its wait. If it is killed before it takes a lock
//! of the crate, it runs on to its next wait or submission, because destructors take locks. If its
//! panic is caught, the next wait and the next race point continue the unwinding. Its destructors
//! do not wait: their waits end at once, as if their time had passed, because a second panic would
//! end the test process.
//!
//! A loop that waits keeps the driver. So only threads of its own node run during the wait.

use super::{
    EnteredMachine, Machine, Shared, current,
    fault::Fault,
    holds_a_lock,
    trace::Happening,
    turns::Stuck,
    world::{Condition, World},
};
use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::Duration,
};

/// For how long a thread is preempted, in nanoseconds.
const PREEMPTION: std::ops::Range<u64> = 1_000..2_000_000;

/// The longest wait of a loop without a timeout, in nanoseconds of the world. It ends waits for a
/// thread that only wakes up again and again.
const LONGEST_WAIT_OF_LOOP: u64 = 60_000_000_000;

/// How often a thread may wait after it was killed. Its destructors may wait. Code that
/// waits again and again does not end.
const MOST_WAITS_OF_KILLED: u32 = 10_000;

/// The payload of the panic that unwinds a thread of a killed node.
struct Killed;

thread_local! {
    /// The index of the thread. `None` for threads of the operating system.
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
    /// How often the thread has waited since its node was killed. `None` before.
    static WAITS_OF_KILLED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Returns whether the calling thread is a thread of a simulated node.
pub(crate) fn is_thread() -> bool {
    index_of_thread().is_some()
}

fn index_of_thread() -> Option<usize> {
    THREAD.get()
}

fn is_killed() -> bool {
    WAITS_OF_KILLED.get().is_some()
}

/// Starts a thread of `machine`'s node. It waits for its turn.
pub(super) fn spawn(machine: Machine, name: String, body: Box<dyn FnOnce() + Send>) {
    let shared = machine.shared().clone();
    let index = shared.lock().add_thread(machine.node(), &name);
    let run = move || {
        THREAD.set(Some(index));
        let entered: EnteredMachine = machine.enter();
        let panic = if machine.shared().turns.wait(index) {
            catch_unwind(AssertUnwindSafe(body)).err()
        } else {
            WAITS_OF_KILLED.set(Some(0));
            // Its destructors run before another thread does.
            catch_unwind(AssertUnwindSafe(|| drop(body))).err()
        };
        // A panic after the kill is one of code that has caught the unwinding.
        let message = panic.filter(|_| !is_killed()).map(|panic| message(&*panic));
        drop(entered);
        machine.lock().end_thread(index, message);
        machine.shared().turns.end(index);
    };
    let started = thread::Builder::new().name(name).spawn(run);
    shared.turns.started(index, started.expect("the system starts the threads of a simulation"));
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

impl Shared {
    /// Gives the turn to a thread, and returns when the thread gives it back.
    ///
    /// # Errors
    /// The name of the thread if it is stuck. The simulation is over then.
    pub(crate) fn run_thread(&self, index: usize) -> Result<(), String> {
        self.turns.run(index).map_err(|stuck| self.describe(index, stuck))
    }

    /// Unwinds a thread that waits.
    ///
    /// # Errors
    /// The error of [`Shared::run_thread`].
    pub(crate) fn unwind_thread(&self, index: usize) -> Result<(), String> {
        self.turns.unwind(index).map_err(|stuck| self.describe(index, stuck))
    }

    fn describe(&self, index: usize, stuck: Stuck) -> String {
        let thread = self.lock().thread_name(index);
        match stuck {
            Stuck::KeepsItsTurn(longest) => format!(
                "{thread} has not waited or ended within {longest:?} of real time; it computes, or it blocks in \
                 something that the simulation does not control, for example in a lock of a thread that waits"
            ),
            Stuck::DoesNotUnwind => format!(
                "{thread} does not end after its node was killed; a destructor, or code that catches panics, \
                 waits again and again"
            ),
        }
    }
}

/// Lets time pass for the calling thread of a node, or for the loop that the driver runs.
pub(crate) fn pause(machine: &Machine, time: Duration) {
    match index_of_thread() {
        Some(index) => drop(wait_in_thread(machine, index, None, Some(time))),
        None => machine.lock().spend(crate::clock::nanos(time)),
    }
}

/// Blocks the calling thread or loop until the condition is notified, or `timeout` has passed.
/// Returns whether the wait is over without a notification: the timeout has passed, or the wait was
/// given up because the node was killed or nothing can notify the condition.
pub(crate) fn wait(machine: &Machine, condition: Condition, timeout: Option<Duration>) -> bool {
    match index_of_thread() {
        Some(index) => wait_in_thread(machine, index, Some(condition), timeout),
        None => wait_in_loop(machine, condition, timeout),
    }
}

fn wait_in_thread(
    machine: &Machine,
    index: usize,
    condition: Option<Condition>,
    timeout: Option<Duration>,
) -> bool {
    if is_killed() {
        return give_up(machine, index);
    }
    let deadline = give_turn_back(machine, index, condition, timeout);
    if is_killed() {
        return give_up(machine, index);
    }
    deadline.is_some_and(|deadline| machine.lock().now() >= deadline)
}

/// Lets others run until the condition is notified, `timeout` has passed, or the thread is killed.
/// Returns the end of the timeout in the time of the world.
fn give_turn_back(
    machine: &Machine,
    index: usize,
    condition: Option<Condition>,
    timeout: Option<Duration>,
) -> Option<u64> {
    let deadline = {
        let mut world = machine.lock();
        let deadline = deadline(&world, timeout);
        world.block_thread(index, condition, deadline);
        deadline
    };
    let turns = &machine.shared().turns;
    turns.give_back();
    if !turns.wait(index) {
        WAITS_OF_KILLED.set(Some(0));
    }
    deadline
}

/// Ends the wait of a killed thread: unwinds it, or returns if it is being unwound.
fn give_up(machine: &Machine, index: usize) -> bool {
    let waits = WAITS_OF_KILLED.get().unwrap_or(0) + 1;
    WAITS_OF_KILLED.set(Some(waits));
    if waits > MOST_WAITS_OF_KILLED {
        machine.lock().end_thread(index, None);
        machine.shared().turns.end_without_unwinding();
        loop {
            thread::park();
        }
    }
    if !thread::panicking() {
        resume_unwind(Box::new(Killed));
    }
    true
}

/// Continues the unwinding of a killed thread whose panic was caught, where the thread does not
/// wait. Does not begin it, because the caller may hold a lock of the program that other nodes use.
pub(crate) fn resume_unwinding() {
    if WAITS_OF_KILLED.get().is_some_and(|waits| waits > 0) {
        stop_if_killed();
    }
}

/// Begins or continues the unwinding of a killed thread. Does nothing on other threads and during a
/// panic.
pub(crate) fn stop_if_killed() {
    if is_killed()
        && !thread::panicking()
        && let (Some(machine), Some(index)) = (current(), index_of_thread())
    {
        give_up(&machine, index);
    }
}

/// Lets a loop wait: the threads of its node run, and the time of the world advances.
fn wait_in_loop(machine: &Machine, condition: Condition, timeout: Option<Duration>) -> bool {
    let until = {
        let mut world = machine.lock();
        if !machine.lives_in(&world) {
            return true;
        }
        world.begin_wait_of_loop(condition);
        deadline(&world, timeout).unwrap_or(world.now().saturating_add(LONGEST_WAIT_OF_LOOP))
    };
    loop {
        let mut world = machine.lock();
        if !world.loop_waits() {
            return false;
        }
        let Some(index) = next_thread(&mut world, machine.node(), until) else {
            world.end_wait_of_loop();
            if timeout.is_some() {
                let left = until.saturating_sub(world.now());
                world.spend(left);
            } else {
                let node = world.nodes[machine.node()].name.clone();
                world.violate(|| {
                    format!(
                        "node {node}: a loop waits for something that no thread of its node does; other \
                         loops do not run while it waits"
                    )
                });
            }
            return true;
        };
        drop(world);
        if let Err(stuck) = machine.shared().run_thread(index) {
            machine.lock().violate(|| stuck);
            return true;
        }
    }
}

fn deadline(world: &World, timeout: Option<Duration>) -> Option<u64> {
    timeout.map(|timeout| world.now().saturating_add(crate::clock::nanos(timeout)))
}

/// Chooses the thread of a node that runs next, within a turn of a loop of the node.
fn next_thread(world: &mut World, node: usize, until: u64) -> Option<usize> {
    let thread = world.next_thread_of(node, until)?;
    world.note(Happening::ThreadRan, node, thread as u64, 1);
    Some(thread)
}

/// Continues the unwinding of a killed thread whose panic was caught. Returns any other payload.
pub(crate) fn resume_killed(payload: Box<dyn Any + Send>) -> Box<dyn Any + Send> {
    if payload.is::<Killed>() && !thread::panicking() {
        resume_unwind(payload);
    }
    payload
}

/// A thread of a node that is suspended at a race point, until this is dropped.
struct Preempted<'a>(&'a Machine);

impl<'a> Preempted<'a> {
    fn new(machine: &'a Machine) -> Self {
        machine.lock().preempted += 1;
        Preempted(machine)
    }
}

impl Drop for Preempted<'_> {
    fn drop(&mut self) {
        self.0.lock().preempted -= 1;
    }
}

/// Lets another thread run where the caller races with it, if that is drawn: a thread of a node
/// blocks for a moment, and within a loop the next thread of the same node runs. Nothing races with
/// a process that was killed: its threads go on unwinding.
#[cold]
pub(super) fn race_point() {
    race_point_at_lock();
    stop_if_killed();
}

/// Like [`race_point`], before the caller takes a lock. Does not unwind a thread that is killed
/// there, because destructors take locks.
#[cold]
pub(crate) fn race_point_at_lock() {
    if holds_a_lock() || is_killed() || thread::panicking() {
        return;
    }
    let Some(machine) = current() else { return };
    if let Some(index) = index_of_thread() {
        let pause = {
            let mut world = machine.lock();
            world.fails(Fault::ThreadPreempted).then(|| world.faults.size(Fault::ThreadPreempted, PREEMPTION))
        };
        if let Some(pause) = pause {
            let _preempted = Preempted::new(&machine);
            give_turn_back(&machine, index, None, Some(Duration::from_nanos(pause)));
        }
        return;
    }
    let thread = {
        let mut world = machine.lock();
        if !machine.lives_in(&world) || !world.fails(Fault::LoopPreempted) {
            return;
        }
        let within = world.faults.size(Fault::LoopPreempted, PREEMPTION);
        let until = world.now().saturating_add(within);
        next_thread(&mut world, machine.node(), until)
    };
    if let Some(index) = thread
        && let Err(stuck) = machine.shared().run_thread(index)
    {
        machine.lock().violate(|| stuck);
    }
}

/// Wakes the threads that wait for a condition.
pub(crate) fn notify(condition: Condition) {
    if let Some(machine) = current() {
        machine.lock().notify(condition);
    }
}
