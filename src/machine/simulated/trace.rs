//! What has happened, as a hash and, if asked for, as records.
//!
//! Records hold numbers only. No address, no absolute time of the process and no content that a
//! cryptographic library draws is part of them, so two runs of a seed have equal traces.

use std::fmt;

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Happening {
    LoopStarted,
    Turn,
    LoopEnded,
    ThreadRan,
    Listened,
    ConnectBegan,
    Connected,
    ConnectFailed,
    Accepted,
    Read,
    Wrote,
    ShutDown,
    Closed,
    Reset,
    Arrived,
    DatagramSent,
    DatagramArrived,
    DatagramLost,
    Fault,
    Killed,
    Restarted,
    Stalled,
    ClockJumped,
    ClockDrifts,
    WallTimeShifted,
    OutOfDescriptors,
    LinkCut,
    LinkClogged,
    LinkHealed,
}

/// One event: the time in nanoseconds, the node, and two numbers whose meaning depends on the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) at: u64,
    pub(crate) what: Happening,
    pub(crate) node: usize,
    pub(crate) a: u64,
    pub(crate) b: u64,
}

#[derive(Default)]
pub(crate) struct Trace {
    hash: u64,
    pub(crate) count: u64,
    /// The records, if they are kept.
    pub(crate) kept: Option<Vec<Record>>,
    /// How many records are kept at most. Later ones are counted and hashed only.
    pub(crate) limit: usize,
}

impl Trace {
    pub(super) fn note(&mut self, at: u64, what: Happening, node: usize, a: u64, b: u64) {
        self.count += 1;
        for word in [at, what as u64, node as u64, a, b] {
            self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        if let Some(kept) = &mut self.kept
            && kept.len() < self.limit
        {
            kept.push(Record { at, what, node, a, b });
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { at, what, node, a, b } = self;
        let (seconds, rest) = (at / 1_000_000_000, at % 1_000_000_000);
        if *node == usize::MAX {
            return match what {
                Happening::Fault => write!(f, "{seconds}.{rest:09} fault {}", super::fault::name(*a)),
                _ => write!(f, "{seconds}.{rest:09} {what:?} {a} {b}"),
            };
        }
        write!(f, "{seconds}.{rest:09} node {node} {what:?} {a} {b}")
    }
}
