//! The threads of simulated nodes, of which one runs at a time.
//!
//! A thread is a real one, because programs block in `main` and in workers. It runs only while it
//! has the turn. The driver gives the turn to a thread and waits until the thread gives it back: by
//! blocking in a wait of this crate, or by its end. A thread whose node was killed is unwound from
//! its wait.

use super::{Entered, Fault, Happening, Machine, current};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, Thread},
    time::Duration,
};

/// How long the driver waits, in real time, for a thread that has the turn. A thread that takes
/// longer blocks in something that the simulation does not control.
const LONGEST_TURN: Duration = Duration::from_secs(30);

/// For how long a thread is preempted, in nanoseconds.
const PREEMPTION: std::ops::Range<u64> = 1_000..2_000_000;

/// The payload of the panic that unwinds a thread of a killed node.
struct Killed;

/// Who has the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Turn {
    #[default]
    Driver,
    Thread(usize),
    /// The thread is to be unwound.
    Unwind(usize),
}

#[derive(Default)]
pub(crate) struct Threads {
    state: Mutex<State>,
    /// Only the driver waits for it. Threads are unparked, one at a time.
    passed: Condvar,
}

#[derive(Default)]
struct State {
    turn: Turn,
    /// The threads that wait for their turn, by index.
    waiting: Vec<Option<Thread>>,
}

thread_local! {
    static THREAD: RefCell<Option<(Machine, usize)>> = const { RefCell::new(None) };
    /// Whether the thread is being unwound because its node was killed.
    static IS_KILLED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is a thread of a simulated node.
pub(crate) fn is_thread() -> bool {
    THREAD.try_with(|thread| thread.borrow().is_some()).unwrap_or(false)
}

/// Starts a thread of `machine`'s node. It waits for its turn.
pub(super) fn spawn(machine: Machine, name: String, body: Box<dyn FnOnce() + Send>) {
    let shared = machine.shared().clone();
    let index = shared.lock().add_thread(machine.node());
    let moved = machine.clone();
    let run = move || {
        let machine = moved;
        THREAD.set(Some((machine.clone(), index)));
        let _entered: Entered = machine.enter();
        let shared = machine.shared().clone();
        let result = if shared.threads.await_turn(index) {
            catch_unwind(AssertUnwindSafe(body))
                .map_err(|panic| (!panic.is::<Killed>()).then(|| message(&*panic)))
        } else {
            // Its destructors run before another thread does.
            drop(body);
            Ok(())
        };
        {
            let mut world = shared.lock();
            world.end_thread(index, result.err().flatten());
        }
        shared.threads.pass(Turn::Driver);
    };
    std::thread::Builder::new().name(name).spawn(run).expect("the system starts the threads of a simulation");
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

impl Threads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, to: Turn) {
        let mut state = self.lock();
        state.turn = to;
        match to {
            Turn::Driver => self.passed.notify_one(),
            Turn::Thread(index) | Turn::Unwind(index) => {
                // A thread that does not wait yet looks at the turn before it does.
                if let Some(thread) = state.waiting.get_mut(index).and_then(Option::take) {
                    thread.unpark();
                }
            }
        }
    }

    /// Waits for the turn. Returns `false` if the thread is to be unwound.
    fn await_turn(&self, index: usize) -> bool {
        loop {
            let mut state = self.lock();
            match state.turn {
                Turn::Thread(next) if next == index => return true,
                Turn::Unwind(next) if next == index => return false,
                _ => {}
            }
            if state.waiting.len() <= index {
                state.waiting.resize(index + 1, None);
            }
            state.waiting[index] = Some(thread::current());
            drop(state);
            thread::park();
        }
    }

    #[allow(clippy::disallowed_methods, reason = "guards against threads that never give the turn back")]
    fn await_driver(&self) {
        let mut state = self.lock();
        while state.turn != Turn::Driver {
            let waited = self.passed.wait_timeout(state, LONGEST_TURN);
            let (again, time) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            assert!(
                !time.timed_out() || state.turn == Turn::Driver,
                "a thread of the simulation blocks in something that the simulation does not control"
            );
        }
    }

    /// Gives the turn to a thread, and returns when the thread gives it back.
    pub(crate) fn run(&self, index: usize) {
        self.pass(Turn::Thread(index));
        self.await_driver();
    }

    /// Unwinds a thread that waits.
    pub(crate) fn unwind(&self, index: usize) {
        self.pass(Turn::Unwind(index));
        self.await_driver();
    }
}

/// Blocks the calling thread of a node until the condition is notified, or `timeout` has passed.
/// Returns whether the timeout has passed.
pub(crate) fn block(condition: usize, timeout: Option<Duration>) -> bool {
    let Some((machine, index)) = THREAD.with_borrow(Clone::clone) else { return false };
    if std::thread::panicking() {
        // The destructors of a killed thread do not wait for anything.
        return true;
    }
    if IS_KILLED.get() {
        // The panic was caught on its way.
        resume_unwind(Box::new(Killed));
    }
    let shared = machine.shared();
    let deadline = {
        let mut world = shared.lock();
        let deadline = timeout.map(|timeout| world.now().saturating_add(crate::clock::nanos(timeout)));
        world.block_thread(index, condition, deadline);
        deadline
    };
    shared.threads.pass(Turn::Driver);
    if !shared.threads.await_turn(index) {
        IS_KILLED.set(true);
        resume_unwind(Box::new(Killed));
    }
    deadline.is_some_and(|deadline| shared.lock().now() >= deadline)
}

/// Continues the unwinding of a killed thread whose panic was caught. Returns any other payload.
pub(crate) fn resume_killed(payload: Box<dyn Any + Send>) -> Box<dyn Any + Send> {
    if payload.is::<Killed>() && !std::thread::panicking() {
        resume_unwind(payload);
    }
    payload
}

/// A thread of a node that is suspended at a race point, until this is dropped.
struct Preempted(Machine);

impl Preempted {
    fn new(machine: Machine) -> Self {
        machine.lock().preempted += 1;
        Preempted(machine)
    }
}

impl Drop for Preempted {
    fn drop(&mut self) {
        self.0.lock().preempted -= 1;
    }
}

/// Lets another thread run where the caller races with it, if that is drawn: a thread of a node
/// blocks for a moment, and within a loop the next thread of the same node runs.
pub(crate) fn race_point() {
    let Some(machine) = current() else { return };
    if is_thread() {
        let pause = {
            let mut world = machine.lock();
            world.fails(Fault::ThreadPreempted).then(|| world.faults.size(Fault::ThreadPreempted, PREEMPTION))
        };
        if let Some(pause) = pause {
            let _preempted = Preempted::new(machine);
            block(0, Some(Duration::from_nanos(pause)));
        }
        return;
    }
    let thread = {
        let mut world = machine.lock();
        if !world.fails(Fault::LoopPreempted) {
            return;
        }
        let within = world.faults.size(Fault::LoopPreempted, PREEMPTION);
        let thread = world.preempting_thread(machine.node(), within);
        if let Some(index) = thread {
            world.note(Happening::ThreadRan, machine.node(), index as u64, 1);
        }
        thread
    };
    if let Some(index) = thread {
        machine.shared().threads.run(index);
    }
}

/// Wakes the threads that wait for a condition.
pub(crate) fn notify(condition: usize) {
    if let Some(machine) = current() {
        machine.lock().notify(condition);
    }
}
