//! What the two ends of each relayed connection have written and read.

use super::super::support::Violations;
use netwheel::testing::simulation::sometimes;

/// An end of a relayed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Backend,
}

pub(super) struct Transfers {
    violations: Violations,
    all: Vec<Transfer>,
    /// Transfers that were complete in both directions while all was calm.
    pub(super) completed: u32,
}

#[derive(Default)]
struct Transfer {
    client: Stream,
    backend: Stream,
    /// Whether the process of the gateway or of the backend has ended since. The kernel ends a
    /// plain connection of a killed process as if the stream was complete.
    is_excused: bool,
}

/// The stream that one end writes.
#[derive(Default)]
struct Stream {
    written: usize,
    read: usize,
    /// Whether its writer has ended it in order.
    is_ended: bool,
    /// Whether its reader has seen its end.
    is_seen: bool,
}

/// Returns bytes of the stream of one end.
pub(super) fn bytes(id: usize, end: End, from: usize, length: usize) -> Vec<u8> {
    let salt = id * 31 + usize::from(end == End::Client) * 7;
    (from..from + length).map(|at| (at * 131 + (at >> 8) + salt) as u8).collect()
}

impl Transfers {
    pub(super) fn new(violations: Violations) -> Self {
        Transfers { violations, all: Vec::new(), completed: 0 }
    }

    pub(super) fn begin(&mut self) -> usize {
        self.all.push(Transfer::default());
        self.all.len() - 1
    }

    fn stream(&mut self, id: usize, writer: End) -> Option<&mut Stream> {
        let transfer = self.all.get_mut(id)?;
        Some(match writer {
            End::Client => &mut transfer.client,
            End::Backend => &mut transfer.backend,
        })
    }

    /// Records that a process has ended whose death looks like the end of a stream.
    pub(super) fn excuse_all(&mut self) {
        self.all.iter_mut().for_each(|transfer| transfer.is_excused = true);
    }

    /// Returns the next bytes of the stream of `writer`, and counts them as written.
    pub(super) fn write(&mut self, id: usize, writer: End, length: usize) -> Vec<u8> {
        let Some(stream) = self.stream(id, writer) else { return Vec::new() };
        let from = stream.written;
        stream.written += length;
        bytes(id, writer, from, length)
    }

    /// Records that `writer` ends its stream.
    pub(super) fn end(&mut self, id: usize, writer: End) {
        if let Some(stream) = self.stream(id, writer) {
            stream.is_ended = true;
        }
    }

    /// Checks bytes that have arrived from `writer`.
    pub(super) fn read(&mut self, id: usize, writer: End, arrived: &[u8]) {
        let Some(stream) = self.stream(id, writer) else {
            return self.violations.add(format!("transfer {id} was not begun"));
        };
        let (from, written) = (stream.read, stream.written);
        stream.read += arrived.len();
        let is_next = stream.read <= written && *arrived == bytes(id, writer, from, arrived.len());
        self.violations.unless(is_next, || {
            format!(
                "transfer {id}: {} other bytes of {writer:?} behind {from}; {written} were written",
                arrived.len()
            )
        });
    }

    /// Checks the end of the stream of `writer` at its reader.
    pub(super) fn see_end(&mut self, id: usize, writer: End) {
        let Some(transfer) = self.all.get(id) else { return };
        let is_excused = transfer.is_excused;
        let Some(stream) = self.stream(id, writer) else { return };
        stream.is_seen = true;
        let is_complete = stream.is_ended && stream.read == stream.written;
        let state = (stream.is_ended, stream.read, stream.written);
        self.violations.unless(is_complete || is_excused, || {
            format!("transfer {id}: the stream of {writer:?} ends early: {state:?}")
        });
    }

    /// Checks a connection that has closed without an error.
    pub(super) fn closed_clean(&mut self, id: usize, end: End) {
        let Some(transfer) = self.all.get(id) else { return };
        let stream = if end == End::Client { &transfer.backend } else { &transfer.client };
        self.violations
            .unless(stream.is_seen, || format!("transfer {id}: {end:?} closes clean without an end"));
        if transfer.client.is_seen && transfer.backend.is_seen && end == End::Client {
            sometimes("complete in both directions");
        }
    }

    /// Checks that a transfer without faults is complete in both directions.
    pub(super) fn check_complete(&mut self, id: usize, result: &str) {
        let Some(transfer) = self.all.get(id) else { return };
        let (client, backend) = (&transfer.client, &transfer.backend);
        let is_complete =
            [client, backend].iter().all(|stream| stream.is_seen && stream.read == stream.written);
        self.violations.unless(is_complete, || format!("transfer {id} fails although all is calm: {result}"));
        self.completed += 1;
    }

    pub(super) fn violated(&self, what: String) {
        self.violations.add(what);
    }
}
