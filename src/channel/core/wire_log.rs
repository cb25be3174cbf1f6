//! The reports of a channel to its wire log.

use super::ChannelState;
use crate::channel::{IdleEvent, WireLog, event::Event, max_connection_age::ShutdownCause};
use std::{fmt, io::IoSlice};

impl ChannelState {
    #[inline]
    pub(in crate::channel) fn log_event(&self, event: &Event) {
        if self.extras.are_used() {
            self.wire(|wire| wire.say(format_args!("channel {}: {}", self.id(), Shown(self, event))));
        }
    }

    /// Logs the last `n` bytes of `data`, which were read.
    #[inline]
    pub(in crate::channel) fn log_read(&self, data: &[u8], n: usize) {
        if self.extras.are_used() {
            self.wire(|wire| wire.dump(self.id(), "read", n, &data[data.len() - n..]));
        }
    }

    /// Logs the first `n` pending bytes, which the kernel has accepted.
    #[inline]
    pub(in crate::channel) fn log_written(&self, n: usize) {
        if self.extras.are_used() {
            self.wire(|wire| wire.dump(self.id(), "written", n, &self.first_outbound(n.min(wire.shown()))));
        }
    }

    /// Logs the first `n` sealed bytes, which the transport has accepted.
    pub(in crate::channel) fn log_sealed(&self, n: usize) {
        self.wire(|wire| wire.dump(self.id(), "written", n, &self.extras.sealed_wire()[..n]));
    }

    /// Logs plaintext that the filters have opened, if the log is to show it.
    pub(in crate::channel) fn log_opened(&self, plain: &[u8]) {
        self.wire(|wire| {
            if wire.shows_plaintext() {
                wire.dump(self.id(), "opened", plain.len(), plain);
            }
        });
    }

    /// Logs the first `n` pending bytes, whose sealed form was sent, if the log is to show them.
    pub(in crate::channel) fn log_sent_plaintext(&self, n: usize) {
        self.wire(|wire| {
            if wire.shows_plaintext() {
                wire.dump(self.id(), "sealed and written", n, &self.first_outbound(n.min(wire.shown())));
            }
        });
    }

    #[cold]
    pub(in crate::channel) fn log_closing(&self, how: &str) {
        self.wire(|wire| wire.say(format_args!("channel {}: {how}", self.id())));
    }

    #[cold]
    fn wire(&self, say: impl FnOnce(&WireLog)) {
        if let Some(wire) = self.extras.wire_log().filter(|wire| wire.is_on()) {
            say(wire);
        }
    }

    /// Copies up to `n` of the first pending bytes.
    fn first_outbound(&self, n: usize) -> Vec<u8> {
        let mut first = Vec::with_capacity(n);
        if let Some(out) = self.outbound.buffer() {
            let mut slices = [IoSlice::new(&[]); 64];
            let filled = out.slices(&mut slices, n);
            for slice in &slices[..filled] {
                first.extend_from_slice(slice);
            }
        }
        first
    }
}

/// Formats an event for the log.
struct Shown<'a>(&'a ChannelState, &'a Event);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Event::Active => {
                f.write_str("active")?;
                if let Some(local) = self.0.local_address() {
                    write!(f, ", local {local}")?;
                }
                match self.0.peer_address() {
                    Some(peer) => write!(f, ", peer {peer}"),
                    None => Ok(()),
                }
            }
            Event::ReadComplete => f.write_str("read complete"),
            Event::ReadClosed => f.write_str("the peer has ended its stream"),
            Event::Writability(true) => f.write_str("writable"),
            Event::Writability(false) => {
                write!(f, "not writable, {} bytes are pending", self.0.outbound.pending_bytes())
            }
            Event::Idle(IdleEvent { state, first }) => {
                write!(f, "idle: {state:?}{}", if *first { ", first" } else { "" })
            }
            Event::Shutdown => f.write_str(match self.0.shutdown_cause() {
                Some(ShutdownCause::MaxAge) => "the maximum age is reached",
                _ => "the event loop is shutting down",
            }),
            Event::Error(error) | Event::Panicked(error) => write!(f, "error: {error:#}"),
            Event::Inactive => f.write_str("inactive"),
            Event::StageTimer => f.write_str("a stage's timer"),
        }
    }
}
