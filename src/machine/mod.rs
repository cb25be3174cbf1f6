//! The machine that the program runs on: the operating system, or a simulated one.
//!
//! Threads, condition variables, the default clock and random seeds come from here, so that a
//! simulation can replace them. Without the feature `simulation`, each function here is the one of
//! the standard library.
//!
//! With the feature, a thread may belong to a simulated machine (`simulated`). Whatever it starts
//! then belongs to that machine as well: loops, workers and timer threads. A thread that belongs to
//! no simulated machine uses the operating system.

mod condvar;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;

pub(crate) use condvar::Condvar;

use crate::clock::{Clock, SystemClock};
#[cfg(feature = "simulation")]
use std::time::Duration;
use std::{io, sync::Arc, time::Instant};

/// Starts a thread.
pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        machine.spawn(name, Box::new(body));
        return Ok(());
    }
    std::thread::Builder::new().name(name).spawn(body).map(drop)
}

/// Returns the clock of the machine.
pub(crate) fn clock() -> Arc<dyn Clock> {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        return Arc::new(machine.clock());
    }
    Arc::new(SystemClock)
}

/// Returns the time by which blocked threads measure their timeouts.
#[allow(clippy::disallowed_methods, reason = "the calling thread waits, not a loop")]
pub(crate) fn now() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        return machine.clock().now();
    }
    Instant::now()
}

/// Returns a seed from a simulated machine. `None` on the operating system.
pub(crate) fn seed() -> Option<u64> {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        return Some(machine.seed());
    }
    None
}

/// Returns the number of a new loop, from a simulated machine. `None` on the operating system.
pub(crate) fn next_loop_id() -> Option<u32> {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        return Some(machine.next_loop_id());
    }
    None
}

/// Returns whether the calling thread runs a loop of a simulated machine. It also runs all others,
/// so it must not wait for any of them.
pub(crate) fn runs_all_loops() -> bool {
    #[cfg(feature = "simulation")]
    return simulated::is_driver();
    #[cfg(not(feature = "simulation"))]
    false
}

/// Marks a point where the calling thread races with others. A simulation may run another thread
/// here. The caller must not hold a lock.
#[inline]
pub(crate) fn race_point() {
    #[cfg(feature = "simulation")]
    simulated::race_point();
}

/// Refuses something that works with threads or sockets of the operating system.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] on a simulated machine.
pub(crate) fn refuse_in_simulation(what: &str) -> io::Result<()> {
    #[cfg(feature = "simulation")]
    if simulated::current().is_some() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{what} does not work in a simulation"),
        ));
    }
    let _ = what;
    Ok(())
}

/// Suspends the calling thread. A loop of a simulation is stalled for the time.
#[cfg(feature = "simulation")]
#[allow(clippy::disallowed_methods, reason = "the program asks for it")]
pub(crate) fn sleep(time: Duration) {
    match simulated::current() {
        Some(machine) if simulated::is_driver() => machine.lock().spend(crate::clock::nanos(time)),
        Some(_) => drop(simulated::block(0, Some(time))),
        None => std::thread::sleep(time),
    }
}
