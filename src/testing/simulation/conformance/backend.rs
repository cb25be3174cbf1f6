//! Where a script runs: on the kernel, or on the model with a seed.

use crate::{
    clock::nanos,
    machine::simulated::{EnteredMachine, Fault, FaultSource, LinkSettings, Machine, Shared, WorldStep},
};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// The virtual time after which nothing is under way in a network without faults.
const CALM: Duration = Duration::from_millis(50);

/// Faults that the kernel can show on an idle machine, and their rates.
const FAULTS: &[Fault] = &[
    Fault::ShortRead,
    Fault::ShortWrite,
    Fault::OneEvent,
    Fault::EventsShuffled,
    Fault::SpuriousEdge,
    Fault::LateEdge,
    Fault::SlowSegment,
];
const FAULT_RATE: u32 = 100_000;

/// The size of the send and receive buffers of connections. The kernel doubles it.
pub(super) const BUFFER: usize = 64 << 10;

pub(super) enum Backend {
    /// With the number of the run among all runs of the process and, most likely, of the machine.
    Kernel(u32),
    Model(Model),
}

/// Simulated machines, with the calling thread as a thread of the first one.
pub(super) struct Model {
    pub(super) shared: Arc<Shared>,
    machines: [Machine; 2],
    pace: Pace,
    random: fastrand::Rng,
    _entered: EnteredMachine,
}

/// How much time passes between two calls of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Enough for everything that is under way to arrive.
    Calm,
    /// None.
    Hasty,
    /// A random time.
    Random,
}

/// One of the two machines of a script. On the kernel, both are the same machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server = 0,
    Client = 1,
}

impl Model {
    /// Creates a model for a seed. With one machine, both sides of connections are on it.
    pub(super) fn new(seed: u64, pace: Pace, machines: usize, has_faults: bool) -> Self {
        let mut faults = FaultSource::default();
        for fault in FAULTS.iter().filter(|_| has_faults) {
            faults.set_rate(*fault, FAULT_RATE);
        }
        let shared = Shared::new(seed, faults).expect("the system opens a poll");
        {
            let mut world = shared.lock();
            let buffers = 2 * BUFFER;
            world.set_link(LinkSettings {
                send_buffer: buffers,
                receive_buffer: buffers,
                ..LinkSettings::default()
            });
            for (name, last) in [("server", 1), ("client", 2)].into_iter().take(machines) {
                world.add_node(name, IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
            }
        }
        let machines = [Machine::new(&shared, 0), Machine::new(&shared, machines - 1)];
        let entered = machines[0].enter();
        Model { shared, machines, pace, random: fastrand::Rng::with_seed(seed), _entered: entered }
    }

    /// Lets time pass. Returns `true` early if a loop can run.
    pub(super) fn advance(&self, time: Duration) -> bool {
        let mut world = self.shared.lock();
        let end = world.now().saturating_add(nanos(time));
        loop {
            match world.next_step(end) {
                WorldStep::Idle => return false,
                WorldStep::Loop(_) => return true,
                WorldStep::Thread(_) | WorldStep::Strike | WorldStep::Restart(_) => {}
            }
        }
    }

    fn has_two_machines(&self) -> bool {
        self.machines[0].node() != self.machines[1].node()
    }

    fn pause(&mut self) {
        let time = match self.pace {
            Pace::Calm => CALM,
            Pace::Hasty => return,
            Pace::Random => {
                Duration::from_nanos([0, 1_000, 9_000, 15_000, 600_000, 5_000_000][self.random.usize(..6)])
            }
        };
        let end = self.shared.lock().now().saturating_add(nanos(time));
        loop {
            let left = end.saturating_sub(self.shared.lock().now());
            if !self.advance(Duration::from_nanos(left)) {
                return;
            }
        }
    }
}

impl Backend {
    pub(super) fn kernel() -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Backend::Kernel(std::process::id().wrapping_mul(4096).wrapping_add(run))
    }

    /// Lets time pass between two calls.
    pub(super) fn pause(&mut self) {
        if let Backend::Model(model) = self {
            model.pause();
        }
    }

    /// Makes the calling thread a thread of a machine, until the result is dropped.
    pub(super) fn enter(&self, side: Side) -> Option<EnteredMachine> {
        match self {
            Backend::Kernel(_) => None,
            Backend::Model(model) => Some(model.machines[side as usize].enter()),
        }
    }

    /// Returns an address of a machine, at which both machines reach it. On the kernel, each run
    /// has its own addresses, so that no other test uses their ports.
    pub(super) fn ip(&self, side: Side) -> IpAddr {
        match self {
            Backend::Kernel(run) => {
                let [_, high, middle, low] = (run * 2 + side as u32).to_be_bytes();
                IpAddr::V4(Ipv4Addr::new(127, high & 0x3f | 0x40, middle, low))
            }
            Backend::Model(model) if model.has_two_machines() => {
                IpAddr::V4(Ipv4Addr::new(10, 0, 0, side as u8 + 1))
            }
            Backend::Model(_) => IpAddr::V4(Ipv4Addr::new(127, 0, 0, side as u8 + 2)),
        }
    }

    /// Returns the address from which the client's machine connects, unless it binds another one.
    pub(super) fn source(&self) -> IpAddr {
        match self {
            Backend::Model(model) if model.has_two_machines() => self.ip(Side::Client),
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// Returns how long a script waits for a condition.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Backend::Kernel(_) => Duration::from_secs(20),
            Backend::Model(_) => Duration::from_secs(300),
        }
    }

    /// Returns the time after which a peer has acknowledged the bytes in its buffer. Linux delays
    /// acknowledgements by 40 ms.
    pub(super) fn acknowledgement(&self) -> Duration {
        match self {
            Backend::Kernel(_) => Duration::from_millis(100),
            Backend::Model(_) => CALM,
        }
    }

    /// Returns how long a script waits to see that nothing happens.
    pub(super) fn lull(&self) -> Duration {
        match self {
            Backend::Kernel(_) => Duration::from_millis(2),
            Backend::Model(_) => CALM,
        }
    }
}
