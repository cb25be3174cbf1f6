//! Faults: which may happen, how often, and which have happened.
//!
//! The seed, the kind of a fault and the number of an opportunity decide whether the fault happens,
//! and how large it is. So disabling one fault leaves the draws of all others as they are, and a
//! run is repeated by its seed and the list of disabled faults.

use super::seeds::{derive, mix};
use std::{collections::BTreeSet, fmt};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident $text:literal $usual:literal,)+) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub(crate) enum Fault {
            $($(#[$doc])* $name,)+
        }

        impl Fault {
            pub(crate) const ALL: &[Fault] = &[$(Fault::$name),+];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Fault::$name => $text),+ }
            }

            /// Returns how often the fault usually happens, per million opportunities.
            pub(crate) fn usual_rate(self) -> u32 {
                match self { $(Fault::$name => $usual),+ }
            }
        }
    };
}

faults! {
    /// A read returns fewer bytes than there are. The rest is reported by another edge.
    ShortRead "short-read" 50_000,
    /// A write accepts fewer bytes than there is room for.
    ShortWrite "short-write" 50_000,
    /// A read of a socket with input would block. Another edge follows.
    ReadWouldBlock "read-would-block" 10_000,
    Interrupted "interrupted-call" 10_000,
    AcceptFails "accept-fails" 10_000,
    ConnectRefused "connect-refused" 20_000,
    ConnectUnreachable "connect-unreachable" 10_000,
    ConnectLost "connect-lost" 20_000,
    RegistrationFails "registration-fails" 500,
    WakeFails "wake-fails" 2_000,
    PollFails "poll-fails" 500,
    PollInterrupted "poll-interrupted" 5_000,
    PollReturnsEarly "poll-returns-early" 5_000,
    /// From now on 600 polls in a row return without a reason.
    PollSpins "poll-spins" 100,
    OneEvent "one-event" 20_000,
    EventsShuffled "events-shuffled" 200_000,
    SpuriousEdge "spurious-edge" 5_000,
    LateEdge "late-edge" 10_000,
    SlowTurn "slow-turn" 2_000,
    SlowSegment "slow-segment" 10_000,
    DatagramLost "datagram-lost" 20_000,
    DatagramTwice "datagram-twice" 10_000,
    DatagramLate "datagram-late" 20_000,
    /// A datagram is not accepted at once. An edge follows.
    DatagramWouldBlock "datagram-would-block" 20_000,
    /// A thread loses the processor at a race point. Not usual, as is the next one: a thread of a
    /// program may hold a lock there.
    ThreadPreempted "thread-preempted" 0,
    /// At a race point of a loop, another thread of the node runs.
    LoopPreempted "loop-preempted" 0,
    // The following strike from outside, at intervals.
    LinkCut "link-cut" 30_000,
    LinkClogged "link-clogged" 50_000,
    ConnectionReset "connection-reset" 50_000,
    NodeStalls "node-stalls" 30_000,
    ClockJumps "clock-jumps" 20_000,
    ClockDrifts "clock-drifts" 20_000,
    WallTimeSteps "wall-time-steps" 20_000,
    OutOfDescriptors "out-of-descriptors" 20_000,
    NodeKilled "node-killed" 10_000,
    NodeLosesPower "node-loses-power" 10_000,
}

/// Returns the name of the fault with this number.
pub(super) fn name(number: u64) -> &'static str {
    Fault::ALL.get(number as usize).map_or("unknown", |fault| fault.name())
}

/// The faults of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// Per million opportunities, by the number of the fault.
    pub(crate) rates: Vec<u32>,
    /// Faults that do not happen although they are drawn: kind and number of the opportunity.
    pub(crate) disabled: BTreeSet<(Fault, u64)>,
    /// No fault happens from this time on, in nanoseconds.
    pub(crate) end: Option<u64>,
}

impl Faults {
    pub(crate) fn rate(&self, fault: Fault) -> u32 {
        self.rates.get(fault as usize).copied().unwrap_or(0)
    }

    pub(crate) fn set_rate(&mut self, fault: Fault, per_million: u32) {
        if self.rates.len() < Fault::ALL.len() {
            self.rates.resize(Fault::ALL.len(), 0);
        }
        self.rates[fault as usize] = per_million;
    }

    /// Draws a subset of these faults, each with a rate of its own. Runs in which few kinds of
    /// faults happen often reach states that a mixture of all never reaches.
    pub(crate) fn subset(&self, seed: u64) -> Faults {
        let mut random = fastrand::Rng::with_seed(derive(seed, "subset"));
        let share = random.u32(10..=70);
        let mut drawn = self.clone();
        for rate in &mut drawn.rates {
            let factor = [1, 1, 4, 20][random.usize(..4)];
            let keep = random.u32(..100) < share;
            *rate = if keep { rate.saturating_mul(factor).min(400_000) } else { 0 };
        }
        drawn
    }
}

/// A fault that has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FaultRecord {
    pub(crate) at: u64,
    pub(crate) fault: Fault,
    pub(crate) opportunity: u64,
}

impl fmt::Display for FaultRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.at / 1_000_000_000, self.at % 1_000_000_000);
        write!(f, "{seconds}.{rest:09} {} {}", self.fault.name(), self.opportunity)
    }
}

/// The draws of a run.
pub(crate) struct FaultState {
    faults: Faults,
    kinds: Vec<Draws>,
    pub(crate) happened: Vec<FaultRecord>,
    /// Polls that are still to return without a reason.
    pub(super) spins_left: u32,
}

/// The draws of one kind of fault.
struct Draws {
    seed: u64,
    opportunities: u64,
    /// The generator of the last opportunity, which also draws its sizes.
    random: fastrand::Rng,
}

impl FaultState {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let draws = |fault: &Fault| {
            let seed = derive(seed, fault.name());
            Draws { seed, opportunities: 0, random: fastrand::Rng::with_seed(seed) }
        };
        let kinds = Fault::ALL.iter().map(draws).collect();
        FaultState { faults, kinds, happened: Vec::new(), spins_left: 0 }
    }

    pub(super) fn happens(&mut self, fault: Fault, at: u64) -> bool {
        let rate = self.faults.rate(fault);
        if rate == 0 || self.faults.end.is_some_and(|end| at >= end) {
            return false;
        }
        let draws = &mut self.kinds[fault as usize];
        let opportunity = draws.opportunities;
        draws.opportunities += 1;
        draws.random = fastrand::Rng::with_seed(mix(draws.seed ^ mix(opportunity)));
        let is_drawn = draws.random.u32(..1_000_000) < rate;
        if !is_drawn || self.faults.disabled.contains(&(fault, opportunity)) {
            return false;
        }
        self.happened.push(FaultRecord { at, fault, opportunity });
        true
    }

    /// Draws the size of a fault that has just happened, for example how long it lasts.
    pub(crate) fn size(&mut self, fault: Fault, range: std::ops::Range<u64>) -> u64 {
        self.kinds[fault as usize].random.u64(range)
    }

    /// Ends all faults at `at`.
    pub(crate) fn end_at(&mut self, at: u64) {
        self.faults.end = Some(self.faults.end.map_or(at, |end| end.min(at)));
    }
}
