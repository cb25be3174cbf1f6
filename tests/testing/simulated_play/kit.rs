//! Parts of all plays: drawn choices, violations, and completions that must complete.

pub(super) use crate::support::draw::Draw;
use netwheel::{
    testing::simulation::{Failure, Journal, Simulation, sleep},
    time::default_clock,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MS: Duration = Duration::from_millis(1);

/// How long programs wait for something that must happen, after all faults have ended. Timeouts,
/// retries and cut links of the plays are shorter together.
pub(super) const PATIENCE: Duration = Duration::from_secs(900);

/// Returns the time on the clock of the calling program.
pub(super) fn now() -> Instant {
    default_clock().now()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of one play. Clones share it.
#[derive(Clone)]
pub(super) struct Play(Arc<State>);

struct State {
    violations: Journal<String>,
    open: Mutex<BTreeMap<&'static str, usize>>,
    is_calm: AtomicBool,
    /// Whether only harmless faults happen in the whole play.
    is_strict: bool,
    done: AtomicUsize,
}

impl Play {
    /// Creates a play whose violations end the simulation.
    pub(super) fn new(simulation: &mut Simulation, is_strict: bool) -> Self {
        let play = Play(Arc::new(State {
            violations: Journal::new(),
            open: Mutex::default(),
            is_calm: AtomicBool::new(is_strict),
            is_strict,
            done: AtomicUsize::new(0),
        }));
        let violations = play.0.violations.clone();
        simulation.check("play", move || {
            violations.with(|violations| violations.first().map_or(Ok(()), |first| Err(first.clone())))
        });
        play
    }

    pub(super) fn violation(&self, what: String) {
        self.0.violations.push(what);
    }

    pub(super) fn must(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violation(what());
        }
    }

    /// Returns whether only harmless faults happen from now on.
    pub(super) fn is_calm(&self) -> bool {
        self.0.is_calm.load(SeqCst)
    }

    pub(super) fn is_strict(&self) -> bool {
        self.0.is_strict
    }

    /// Runs amid faults for a time and ends them. The faults of a strict play end no connection and
    /// lose no time, so they last until its end.
    pub(super) fn run_amid_faults(&self, simulation: &mut Simulation, time: Duration) -> Result<(), Failure> {
        if self.is_strict() {
            return Ok(());
        }
        simulation.run_for(time)?;
        simulation.heal();
        // Programs bind the listeners again that the last fault has ended.
        simulation.run_for(SECOND)?;
        self.0.is_calm.store(true, SeqCst);
        Ok(())
    }

    /// Gives the server time to bind its listener, because it may be preempted.
    pub(super) fn wait_for_listener(&self) {
        sleep(100 * MS);
    }

    pub(super) fn wait_for_calm(&self) {
        while !self.is_calm() {
            sleep(200 * MS);
        }
    }

    /// Notes that a program has finished its part.
    pub(super) fn finished(&self) {
        self.0.done.fetch_add(1, SeqCst);
    }

    /// Waits until this many programs have finished.
    pub(super) fn wait_for(&self, programs: usize) {
        while !self.has_finished(programs) {
            sleep(100 * MS);
        }
    }

    pub(super) fn has_finished(&self, programs: usize) -> bool {
        self.0.done.load(SeqCst) >= programs
    }

    /// Waits until `holds` returns `true`, and records a violation if that takes too long.
    pub(super) fn eventually(&self, what: impl FnOnce() -> String, mut holds: impl FnMut() -> bool) -> bool {
        // The pauses are added up, because the clock may jump.
        let (mut waited, mut pause) = (Duration::ZERO, MS);
        while !holds() {
            if waited > PATIENCE {
                self.violation(format!("not within {PATIENCE:?}: {}", what()));
                return false;
            }
            sleep(pause);
            waited += pause;
            pause = (2 * pause).min(SECOND);
        }
        true
    }

    /// Returns a token for a callback that must be called.
    pub(super) fn token(&self, kind: &'static str) -> Token {
        *lock(&self.0.open).entry(kind).or_default() += 1;
        Token { play: self.clone(), kind, is_called: false }
    }

    /// Checks that all callbacks have been called.
    pub(super) fn check_tokens(&self) {
        let open: Vec<_> =
            lock(&self.0.open).iter().filter(|(_, open)| **open > 0).map(|(k, n)| (*k, *n)).collect();
        self.must(open.is_empty(), || format!("never completed: {open:?}"));
    }

    /// Runs until the last program of the play has returned. Checks that no socket is left.
    pub(super) fn end(
        &self,
        simulation: &mut Simulation,
        last: netwheel::testing::simulation::NodeId,
        nodes: &[netwheel::testing::simulation::NodeId],
    ) -> Result<(), Failure> {
        simulation.run_until_ended(last, 40 * PATIENCE)?;
        for node in nodes {
            let node = *node;
            for _ in 0..100 {
                if simulation.open_sockets(node) == 0 {
                    break;
                }
                simulation.run_for(SECOND)?;
            }
            let left = simulation.open_sockets(node);
            self.must(left == 0, || format!("{left} sockets of {node:?} are left"));
        }
        self.check_tokens();
        // The check runs once more.
        simulation.run_for(SECOND)?;
        simulation.spawn(last, || Ok(()));
        simulation.run_for(SECOND)
    }
}

/// Owned by a callback that must be called before it is dropped.
pub(super) struct Token {
    play: Play,
    kind: &'static str,
    is_called: bool,
}

impl Token {
    pub(super) fn called(mut self) {
        self.is_called = true;
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(open) = lock(&self.play.0.open).get_mut(self.kind) {
            *open -= 1;
        }
        if !self.is_called && !std::thread::panicking() {
            self.play.violation(format!("a callback of {} was dropped without a call", self.kind));
        }
    }
}
