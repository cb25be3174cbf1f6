//! What has happened, as a hash and, if asked for, as records, text or JSON lines.
//!
//! Records hold numbers only. No address of the process and no time of the process is part of them,
//! so two runs of a seed have equal traces. The contents of reads and writes are part of them as a
//! digest, unless the program says that they are not reproducible.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Write},
};

const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

/// How many of the last records are kept for the report of a failure.
const LAST: usize = 64;

macro_rules! happenings {
    ($($name:ident $text:literal $a:literal $b:literal,)+) => {
        /// A kind of event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Happening {
            $($name,)+
        }

        impl Happening {
            pub(crate) fn name(self) -> &'static str {
                match self { $(Happening::$name => $text),+ }
            }

            /// Returns the names of the two numbers of a record. Empty for an unused one.
            fn fields(self) -> (&'static str, &'static str) {
                match self { $(Happening::$name => ($a, $b)),+ }
            }
        }
    };
}

happenings! {
    LoopStarted "loop-started" "loop" "",
    Turn "turn" "loop" "events",
    LoopEnded "loop-ended" "loop" "",
    ThreadRan "thread-ran" "thread" "",
    Listened "listened" "socket" "port",
    ConnectBegan "connect-began" "socket" "port",
    Connected "connected" "socket" "peer",
    ConnectFailed "connect-failed" "socket" "",
    Accepted "accepted" "listener" "socket",
    Read "read" "socket" "bytes",
    Wrote "wrote" "socket" "bytes",
    ShutDown "shut-down" "socket" "",
    Closed "closed" "socket" "",
    Reset "reset" "socket" "from_peer",
    Arrived "arrived" "socket" "bytes",
    DatagramSent "datagram-sent" "socket" "bytes",
    DatagramArrived "datagram-arrived" "socket" "bytes",
    DatagramRead "datagram-read" "socket" "bytes",
    DatagramLost "datagram-lost" "socket" "buffer_full",
    Fault "fault" "kind" "",
    Operation "operation" "number" "",
    Killed "killed" "power_lost" "",
    Restarted "restarted" "" "",
    Stalled "stalled" "ns" "",
    ClockJumped "clock-jumped" "ns" "",
    ClockDrifts "clock-drifts" "millionths" "",
    WallTimeShifted "wall-time-shifted" "ns" "back",
    OutOfDescriptors "out-of-descriptors" "ns" "",
    LinkCut "link-cut" "to" "ns",
    LinkClogged "link-clogged" "to" "ns",
    LinkHealed "link-healed" "to" "ns",
}

/// One event: the time in nanoseconds, the node, and two numbers whose meaning depends on the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) at: u64,
    pub(crate) what: Happening,
    /// `usize::MAX` for events of the world.
    pub(crate) node: usize,
    pub(crate) a: u64,
    pub(crate) b: u64,
    /// The digest of the stream of bytes in this direction, or 0.
    pub(crate) contents: u64,
}

pub(crate) struct Trace {
    hash: u64,
    /// Whether the contents of reads and writes are part of the hash and of the records.
    pub(crate) has_contents: bool,
    /// The first records, if they are kept.
    pub(crate) kept: Option<Vec<Record>>,
    /// How many records are kept at most. Later ones are counted and hashed only.
    pub(crate) limit: usize,
    /// The last records, at most [`LAST`].
    last: VecDeque<Record>,
    /// Where records are written as JSON lines.
    sink: Option<Box<dyn Write + Send>>,
}

impl Default for Trace {
    fn default() -> Self {
        Trace { hash: 0, has_contents: true, kept: None, limit: 0, last: VecDeque::new(), sink: None }
    }
}

impl Trace {
    pub(super) fn note(&mut self, record: Record) {
        let Record { at, what, node, a, b, mut contents } = record;
        if !self.has_contents {
            contents = 0;
        }
        // The products do not depend on each other, so they cost the time of one.
        let kind = (what as u64) | ((node as u64) << 8);
        let numbers = kind.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ a.wrapping_mul(FACTOR);
        let numbers = numbers ^ b.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ contents.rotate_left(17);
        let hash = (self.hash.rotate_left(5) ^ at).wrapping_mul(FACTOR);
        self.hash = (hash.rotate_left(23) ^ numbers).wrapping_mul(FACTOR);
        let record = Record { contents, ..record };
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(record);
        if self.kept.is_some() || self.sink.is_some() {
            self.keep(record);
        }
    }

    #[cold]
    fn keep(&mut self, record: Record) {
        if let Some(kept) = &mut self.kept
            && kept.len() < self.limit
        {
            kept.push(record);
        }
        if let Some(sink) = &mut self.sink
            && record.write_json(sink).is_err()
        {
            // A full disk ends the trace, and not the run.
            self.sink = None;
        }
    }

    /// Writes all further records to `sink`.
    pub(crate) fn write_to(&mut self, sink: Box<dyn Write + Send>) {
        self.sink = Some(sink);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the last records, in their order.
    pub(crate) fn last(&self) -> Vec<Record> {
        self.last.iter().copied().collect()
    }

    /// Frees all records and closes the sink.
    pub(super) fn free(&mut self) {
        (self.kept, self.sink, self.last) = (None, None, VecDeque::new());
    }
}

impl Record {
    fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let (a, b) = self.what.fields();
        [(a, self.a), (b, self.b)].into_iter().filter(|(name, _)| !name.is_empty())
    }

    /// Writes the record as one line of JSON. All names are fixed and need no escapes.
    fn write_json(&self, sink: &mut dyn Write) -> io::Result<()> {
        write!(sink, "{{\"at\":{},\"event\":\"{}\"", self.at, self.what.name())?;
        if self.node != usize::MAX {
            write!(sink, ",\"node\":{}", self.node)?;
        }
        for (name, number) in self.numbers() {
            match self.what {
                Happening::Fault => write!(sink, ",\"{name}\":\"{}\"", super::fault::name(number))?,
                _ => write!(sink, ",\"{name}\":{number}")?,
            }
        }
        if self.contents != 0 {
            write!(sink, ",\"contents\":\"{:016x}\"", self.contents)?;
        }
        sink.write_all(b"}\n")
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.at / 1_000_000_000, self.at % 1_000_000_000);
        write!(f, "{seconds}.{rest:09}")?;
        if self.node != usize::MAX {
            write!(f, " node {}", self.node)?;
        }
        write!(f, " {}", self.what.name())?;
        if self.what == Happening::Fault {
            return write!(f, " {}", super::fault::name(self.a));
        }
        self.numbers().try_for_each(|(name, number)| write!(f, " {name}={number}"))?;
        if self.contents != 0 {
            write!(f, " contents={:016x}", self.contents)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_records_are_kept_in_their_order() {
        for count in [0, 1, LAST - 1, LAST, LAST + 1, 2 * LAST, 5 * LAST / 2] {
            let mut trace = Trace::default();
            let record = |at| Record { at, what: Happening::Turn, node: 0, a: 0, b: 0, contents: 0 };
            (0..count as u64).for_each(|at| trace.note(record(at)));
            let times: Vec<u64> = trace.last().iter().map(|record| record.at).collect();
            let expected: Vec<u64> = (count.saturating_sub(LAST) as u64..count as u64).collect();
            assert_eq!(times, expected);
        }
    }
}
