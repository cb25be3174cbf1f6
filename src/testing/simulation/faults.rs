//! The faults of a simulation.

use crate::machine::simulated::{self, Fault};

/// The faults that happen in a [`Simulation`](super::Simulation), and their frequencies.
///
/// | name | fault |
/// |---|---|
/// | `short-read`, `short-write`, `read-would-block`, `interrupted-call` | of system calls |
/// | `accept-fails`, `connect-refused`, `connect-unreachable`, `connect-lost` | of connections |
/// | `registration-fails`, `wake-fails`, `poll-fails`, `poll-interrupted`, `poll-returns-early`, `poll-spins` | of the poll |
/// | `one-event`, `events-shuffled`, `spurious-edge`, `late-edge` | of its events |
/// | `slow-turn`, `slow-segment` | of time |
/// | `datagram-lost`, `datagram-twice`, `datagram-late`, `datagram-would-block` | of UDP |
/// | `disk-busy`, `slow-disk`, `sync-fails` | of disks: accesses of a [`MemoryDisk`](crate::durable::MemoryDisk) |
/// | `request-refused`, `answer-lost` | of the server of a [`MemoryDatabase`](crate::durable::MemoryDatabase) |
/// | `thread-preempted`, `loop-preempted` | of scheduling: another thread of the node runs when work is submitted to a loop, or when a lock of this crate is taken |
/// | `link-cut`, `link-clogged`, `connection-reset` | of links; an opportunity every 0.2 s |
/// | `node-stalls`, `clock-jumps`, `clock-drifts`, `wall-time-steps`, `out-of-descriptors`, `disk-full`, `node-killed`, `node-loses-power` | of nodes; an opportunity every 0.2 s |
///
/// The faults of scheduling are not among [`all`](Faults::all), because they require that no thread
/// of the program calls this crate while it holds a lock of its own. A
/// [`Journal`](super::Journal), [`sometimes`](super::sometimes), [`chance`](super::chance) and
/// [`seed`](super::seed) may be used there. [`with_races`](Faults::with_races) adds them.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Faults {
    pub(super) plan: simulated::FaultSource,
}

impl Faults {
    /// Returns a plan without faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns all faults at their usual rates, except for the faults of scheduling.
    pub fn all() -> Self {
        let mut faults = Self::default();
        for fault in Fault::ALL {
            faults.plan.set_rate(*fault, fault.usual_rate());
        }
        faults
    }

    /// Returns [`all`](Faults::all) faults that leave the programs of the nodes running.
    pub fn without_kills() -> Self {
        Self::all().rate("node-killed", 0).rate("node-loses-power", 0)
    }

    /// Adds the faults of scheduling, at one of 100 opportunities: threads of a node race with each
    /// other and with its loops.
    ///
    /// ```
    /// use netwheel::testing::simulation::{Exploration, Faults};
    ///
    /// let faults = Faults::all().with_races();
    /// let exploration = Exploration::new(10).faults(faults);
    /// ```
    pub fn with_races(mut self) -> Self {
        for fault in [Fault::ThreadPreempted, Fault::LoopPreempted] {
            self.plan.set_rate(fault, 10_000);
        }
        self
    }

    /// Sets how often a fault happens, per million opportunities. At most 900,000 calls in a
    /// million are interrupted.
    ///
    /// # Panics
    /// If no fault has the name.
    pub fn rate(mut self, name: &str, per_million: u32) -> Self {
        let fault = Fault::ALL.iter().find(|fault| fault.name() == name);
        let fault = fault.unwrap_or_else(|| panic!("no fault is named {name}"));
        // A call that is always interrupted would be repeated forever.
        let most = if *fault == Fault::Interrupted { 900_000 } else { 1_000_000 };
        self.plan.set_rate(*fault, per_million.min(most));
        self
    }

    /// Draws a subset of these faults for a seed, each with a rate of its own.
    pub fn subset(&self, seed: u64) -> Self {
        Faults { plan: self.plan.subset(seed) }
    }

    /// Returns the names of the faults that may happen.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        Fault::ALL.iter().filter(|fault| self.plan.rate(**fault) > 0).map(|fault| fault.name())
    }
}
