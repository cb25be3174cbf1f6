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
#[cfg(feature = "durable")]
mod disk;
#[cfg(feature = "durable")]
mod failure;
mod join_handle;
mod mutex;
mod parker;
#[cfg(feature = "durable")]
mod route;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;
mod system_mutex;

pub(crate) use condvar::Condvar;
#[cfg(feature = "durable")]
pub(crate) use disk::Disk;
#[cfg(feature = "durable")]
pub(crate) use failure::{DiskError, RouteError};
pub(crate) use join_handle::JoinHandle;
pub(crate) use mutex::{Mutex, MutexGuard};
pub(crate) use parker::Parker;
#[cfg(feature = "durable")]
pub(crate) use route::Route;
pub(crate) use system_mutex::SystemMutex;

use crate::clock::{Clock, SystemClock};
#[cfg(feature = "simulation")]
use std::time::Duration;
use std::{any::Any, io, sync::Arc, time::Instant};

/// Starts a thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        let ending: Arc<join_handle::Ending<T>> = Arc::default();
        let theirs = ending.clone();
        machine.spawn(name, Box::new(theirs.of(body)));
        return Ok(JoinHandle::Simulated(ending));
    }
    std::thread::Builder::new().name(name).spawn(body).map(JoinHandle::System)
}

/// Returns whether a thread may spin while it waits for another one. `false` in a simulation, where
/// one thread runs at a time.
#[cfg(any(feature = "durable", feature = "broker-sqlite"))]
pub(crate) fn may_spin() -> bool {
    #[cfg(feature = "simulation")]
    return simulated::current().is_none();
    #[cfg(not(feature = "simulation"))]
    true
}

/// Returns the payload of a panic that was caught, unless it unwinds a thread of a simulated node
/// that was killed: then the unwinding continues. Called wherever the crate catches panics of
/// programs on threads that may block.
pub(crate) fn resume_killed(payload: Box<dyn Any + Send>) -> Box<dyn Any + Send> {
    #[cfg(feature = "simulation")]
    return simulated::resume_killed(payload);
    #[cfg(not(feature = "simulation"))]
    payload
}

/// Returns the clock of the machine: [`SystemClock`], or that of the node in a simulation.
///
/// Groups of event loops use it unless they are built with another one. Programs use it where no
/// loop gives the time, so that they also run in a simulation.
pub fn default_clock() -> Arc<dyn Clock> {
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

/// Fills `bytes` with random bytes of a simulated machine. Returns `false` on the operating system.
#[cfg(feature = "websocket")]
pub(crate) fn fill_random(bytes: &mut [u8]) -> bool {
    #[cfg(feature = "simulation")]
    if let Some(machine) = simulated::current() {
        for chunk in bytes.chunks_mut(8) {
            let drawn = machine.seed().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
        return true;
    }
    let _ = bytes;
    false
}

/// Returns the number of processors. A simulated machine always has two, because a seed must repeat
/// its run on any machine.
pub(crate) fn processors() -> usize {
    #[cfg(feature = "simulation")]
    if simulated::current().is_some() {
        return 2;
    }
    std::thread::available_parallelism().map_or(1, usize::from)
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

/// Returns whether the calling thread runs a simulation with this loop, so it must not wait for the
/// loop.
pub(crate) fn runs_loop(event_loop: u32) -> bool {
    #[cfg(feature = "simulation")]
    return simulated::runs_loop(event_loop);
    #[cfg(not(feature = "simulation"))]
    {
        let _ = event_loop;
        false
    }
}

/// Returns whether the process of the calling thread was killed in a simulation, so that its values
/// are being dropped. Only destructors of the program may run then.
pub(crate) fn is_killed() -> bool {
    #[cfg(feature = "simulation")]
    return simulated::current().is_some_and(|machine| !machine.is_alive());
    #[cfg(not(feature = "simulation"))]
    false
}

/// Unwinds the calling thread if its process was killed in a simulation. Does nothing
/// during a panic.
#[inline]
pub(crate) fn stop_if_killed() {
    #[cfg(feature = "simulation")]
    simulated::stop_if_killed();
}

/// Marks a point where the calling thread races with others. A simulation may run another thread
/// here, unless the caller holds a [`Mutex`].
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
        Some(machine) => simulated::pause(&machine, time),
        None => std::thread::sleep(time),
    }
}
