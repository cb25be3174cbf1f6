//! What programs of a simulation call.
//!
//! All but [`sleep`] may be called while the program holds a lock of its own: no other thread runs
//! in the meantime.

use crate::machine::simulated;
use std::time::Duration;

/// Suspends the calling program of a node in virtual time. Outside of a simulation, the thread is
/// suspended.
///
/// In a handler or a task of a loop, only the time passes. No other loop or thread runs and no
/// packet arrives until the call returns, on any node. Use a timer, or
/// [`Simulation::stall`](super::Simulation::stall) for a node that does not run for a while.
pub fn sleep(time: Duration) {
    crate::machine::sleep(time);
}

/// Draws a seed for a random number generator of the calling program. `None` outside of a
/// simulation.
pub fn seed() -> Option<u64> {
    simulated::resume_unwinding();
    crate::machine::seed()
}

/// Draws whether the calling program performs an optional operation, `per_million` times in a
/// million. A seed that fails shrinks to few of these operations. `false` outside of a simulation.
///
/// ```
/// use netwheel::testing::simulation::{Simulation, chance, sleep};
/// use std::time::Duration;
///
/// let mut simulation = Simulation::new(1);
/// let node = simulation.node("one", "10.0.0.1", || {
///     for _ in 0..100 {
///         // A report of a failure has only the sleeps that matter.
///         if chance("sleep", 500_000) {
///             sleep(Duration::from_secs(1));
///         }
///     }
///     Ok(())
/// });
/// simulation.run_until_ended(node, Duration::from_secs(101))?;
/// assert!(simulation.elapsed() > Duration::from_secs(20));
/// # Ok::<(), netwheel::testing::simulation::Failure>(())
/// ```
///
/// # Panics
/// If `name` contains `@`, `=` or `;`, which the report of a failure uses as separators.
pub fn chance(name: &'static str, per_million: u32) -> bool {
    assert!(
        !name.contains(['@', '=', ';']),
        "the name of an operation is {name:?}; it must not contain @, = or ;"
    );
    simulated::resume_unwinding();
    simulated::chance(name, per_million)
}

/// Counts that the calling program has reached a state that a test wants to reach sometimes, for
/// example a reconnect during a shutdown. [`Explored`](super::Explored) has the counters. Does
/// nothing outside of a simulation.
pub fn sometimes(what: &'static str) {
    simulated::resume_unwinding();
    if let Some(machine) = simulated::current() {
        *machine.lock().sometimes.entry(what).or_default() += 1;
    }
}
