//! Whose turn it is: the driver's, or that of one thread.
//!
//! The driver gives the turn to a thread and waits until the thread gives it back: by a wait, or by
//! its end. A thread has ended when the values in its thread-locals are dropped, so these
//! destructors do not run beside other threads either.
//!
//! A thread that keeps its turn for too long, in real time, is stuck in something that the
//! simulation does not control. Then the simulation is over: all other threads are unwound at once,
//! without turns, so that nothing is left of it but the thread that is stuck.

use crate::machine::system_mutex::SystemMutex;
use std::{
    sync::{Condvar, PoisonError},
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

/// How long a thread may keep its turn, in real time, unless the simulation sets another limit.
const LONGEST_TURN: Duration = Duration::from_secs(30);

/// Who has the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Driver,
    Thread(usize),
    /// The thread is to be unwound.
    Unwind(usize),
}

/// Why a simulation cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stuck {
    /// The thread has not given its turn back within this time.
    KeepsItsTurn(Duration),
    /// The thread was killed, and waits again and again instead of ending.
    DoesNotUnwind,
}

pub(crate) struct Turns {
    state: SystemMutex<State>,
    /// Only the driver waits for it. Threads are unparked, one at a time.
    passed: Condvar,
}

struct State {
    turn: Turn,
    /// The threads that wait for their turn, by index.
    waiting: Vec<Option<Thread>>,
    /// The threads that have not ended, by index.
    handles: Vec<Option<JoinHandle<()>>>,
    /// The thread that has just ended, until the driver has joined it.
    ended: Option<JoinHandle<()>>,
    /// The thread that has the turn does not unwind.
    does_not_unwind: bool,
    is_over: bool,
    longest: Duration,
}

impl Default for Turns {
    fn default() -> Self {
        let state = State {
            turn: Turn::Driver,
            waiting: Vec::new(),
            handles: Vec::new(),
            ended: None,
            does_not_unwind: false,
            is_over: false,
            longest: LONGEST_TURN,
        };
        Turns { state: SystemMutex::new(state), passed: Condvar::new() }
    }
}

/// Stores `value` at `index`, and makes room for it.
fn put<T>(list: &mut Vec<Option<T>>, index: usize, value: T) {
    if list.len() <= index {
        list.resize_with(index + 1, || None);
    }
    list[index] = Some(value);
}

impl Turns {
    /// Sets how long a thread may keep its turn, in real time.
    pub(crate) fn set_longest(&self, longest: Duration) {
        self.state.lock().longest = longest;
    }

    /// Keeps the handle of a thread that was started, and has not had a turn.
    pub(super) fn started(&self, index: usize, handle: JoinHandle<()>) {
        put(&mut self.state.lock().handles, index, handle);
    }

    /// Waits for the turn of the calling thread. Returns `false` if the thread is to be unwound.
    pub(super) fn wait(&self, index: usize) -> bool {
        loop {
            let mut state = self.state.lock();
            match state.turn {
                _ if state.is_over => return false,
                Turn::Thread(next) if next == index => return true,
                Turn::Unwind(next) if next == index => return false,
                _ => {}
            }
            put(&mut state.waiting, index, thread::current());
            drop(state);
            thread::park();
        }
    }

    /// Gives the turn of the calling thread back to the driver.
    pub(super) fn give_back(&self) {
        let mut state = self.state.lock();
        state.turn = Turn::Driver;
        drop(state);
        self.passed.notify_one();
    }

    /// Gives the turn back for the last time, because the calling thread ends.
    pub(super) fn end(&self, index: usize) {
        let mut state = self.state.lock();
        state.ended = state.handles.get_mut(index).and_then(Option::take).filter(|_| !state.is_over);
        drop(state);
        self.give_back();
    }

    /// Ends the simulation, because the calling thread was killed and does not unwind.
    pub(super) fn end_without_unwinding(&self) {
        self.state.lock().does_not_unwind = true;
        self.give_back();
    }

    /// Gives the turn to a thread, and returns when the thread gives it back.
    pub(super) fn run(&self, index: usize) -> Result<(), Stuck> {
        self.pass(index, Turn::Thread(index))
    }

    /// Unwinds a thread that waits.
    pub(super) fn unwind(&self, index: usize) -> Result<(), Stuck> {
        self.pass(index, Turn::Unwind(index))
    }

    #[allow(clippy::disallowed_methods, reason = "guards against threads that never give the turn back")]
    fn pass(&self, index: usize, to: Turn) -> Result<(), Stuck> {
        let mut state = self.state.lock();
        if state.is_over {
            return Ok(());
        }
        state.turn = to;
        // A thread that does not wait yet looks at the turn before it does.
        if let Some(thread) = state.waiting.get_mut(index).and_then(Option::take) {
            thread.unpark();
        }
        let longest = state.longest;
        while state.turn != Turn::Driver {
            let waited = self.passed.wait_timeout(state, longest);
            let (again, time) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            if time.timed_out() && state.turn != Turn::Driver {
                drop(state);
                self.abandon();
                return Err(Stuck::KeepsItsTurn(longest));
            }
        }
        let (ended, does_not_unwind) = (state.ended.take(), state.does_not_unwind);
        drop(state);
        if let Some(thread) = ended {
            // Its panics were caught.
            let _ = thread.join();
        }
        if does_not_unwind {
            self.abandon();
            return Err(Stuck::DoesNotUnwind);
        }
        Ok(())
    }

    /// Ends the simulation: all threads that wait are unwound, without turns.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.turn = Turn::Driver;
        state.handles.clear();
        state.waiting.drain(..).flatten().for_each(|thread| thread.unpark());
    }

    /// Returns whether the simulation was ended because a thread is stuck.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }
}
