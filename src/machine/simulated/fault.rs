//! The kinds of faults, and a fault that has happened.

use std::fmt;

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
    DiskFull "disk-full" 10_000,
    // The following are those of disks.
    DiskBusy "disk-busy" 3_000,
    SlowDisk "slow-disk" 3_000,
    /// A sync fails, and unsynced transactions may be lost.
    SyncFails "sync-fails" 500,
    // The following are those of services without sockets.
    RequestRefused "request-refused" 3_000,
    AnswerLost "answer-lost" 3_000,
}

/// Returns the name of the fault with this number.
pub(super) fn name(number: u64) -> &'static str {
    Fault::ALL.get(number as usize).map_or("unknown", |fault| fault.name())
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
