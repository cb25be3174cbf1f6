//! A channel's bytes and events in the log.
//!
//! Always holds: each thing is said once, when it happens, and changes nothing; where the level is off nothing is
//! formatted or copied. Runs on the channel's loop, for as long as the program's logger takes.

use super::{
    idle::IdleEvent,
    state::{ChannelState, Flags},
};
use crate::pipeline::Event;
use pretty_hex::{HexConfig, PrettyHex};
use std::{borrow::Cow, fmt, io::IoSlice};

/// Writes what a channel does to the log: its events, and its bytes as a hex dump.
///
/// Given to [`Pipeline::wire_log`](crate::Pipeline::wire_log), or switched on and off in a callback by
/// [`Scope::set_wire_log`](crate::Scope::set_wire_log). Bytes are those that cross the socket: read from it, or taken by the
/// kernel. So what was written together is one record, and a large message may be several. Bytes that are thrown away when
/// a channel closes are not shown. The events are those of the [`Handler`](crate::Handler), each before it is called, and
/// who ends what: `closing`, `closing now`, `ending the output`.
///
/// | setting | default | |
/// |---|---|---|
/// | `level` | `Debug` | |
/// | `target` | "netwheel::wire" | what a logger filters by |
/// | `max_bytes` | 1024 of each record | 0 shows none; how many there were is always said |
///
/// It takes as long as the program's logger does, on the event loop: for looking into something, not for every connection of
/// a busy server. Passwords are bytes like any other.
///
/// ```
/// # use netwheel::{WireLog, codec::LengthField, prelude::*};
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type In = bytes::Bytes; type Out = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// let pipeline = Pipeline::new()
///     .wire_log(WireLog::new().level(log::Level::Trace))
///     .codec(LengthField::u32())
///     .handler(Echo);
/// ```
///
/// ```text
/// channel 0-3.0: read 6 bytes
/// 0000:   00 00 00 02  68 69                                  ....hi
/// ```
#[derive(Debug, Clone)]
pub struct WireLog {
    level: log::Level,
    target: Cow<'static, str>,
    max_bytes: usize,
}

impl Default for WireLog {
    fn default() -> Self {
        WireLog { level: log::Level::Debug, target: Cow::Borrowed("netwheel::wire"), max_bytes: 1024 }
    }
}

impl WireLog {
    /// The defaults of the table above.
    pub fn new() -> Self {
        Self::default()
    }

    /// The level of its records.
    pub fn level(mut self, level: log::Level) -> Self {
        self.level = level;
        self
    }

    /// The target of its records, by which a logger can tell them from others.
    pub fn target(mut self, target: impl Into<Cow<'static, str>>) -> Self {
        self.target = target.into();
        self
    }

    /// Bytes of each record that are shown.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    fn is_on(&self) -> bool {
        log::log_enabled!(target: &self.target, self.level)
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        log::log!(target: &self.target, self.level, "{what}");
    }
}

impl ChannelState {
    #[inline]
    pub(super) fn log_event(&self, event: &Event) {
        if self.extras.is_some() {
            self.wire(|wire| wire.say(format_args!("channel {}: {}", self.id(), Told(self, event))));
        }
    }

    #[inline]
    pub(super) fn log_read(&self, bytes: &[u8]) {
        if self.extras.is_some() {
            self.wire(|wire| self.dump(wire, "read", bytes.len(), bytes));
        }
    }

    /// The kernel has taken the first `n` of the bytes that wait.
    #[inline]
    pub(super) fn log_written(&self, n: usize) {
        if self.extras.is_some() {
            self.wire(|wire| self.dump(wire, "written", n, &self.first_outbound(n.min(wire.max_bytes))));
        }
    }

    /// The transport has taken the first `n` of the sealed bytes that wait.
    pub(super) fn log_sealed(&self, n: usize) {
        self.wire(|wire| self.dump(wire, "written", n, &self.sealed_wire()[..n]));
    }

    pub(super) fn log_closing(&self, how: Flags) {
        self.wire(|wire| {
            let how = match how {
                Flags::CLOSING => "closing",
                Flags::CLOSE_NOW => "closing now",
                _ => "ending the output",
            };
            wire.say(format_args!("channel {}: {how}", self.id()));
        });
    }

    #[cold]
    fn wire(&self, say: impl FnOnce(&WireLog)) {
        if let Some(wire) = self.wire_log().filter(|wire| wire.is_on()) {
            say(wire);
        }
    }

    fn dump(&self, wire: &WireLog, what: &str, n: usize, bytes: &[u8]) {
        let shown = &bytes[..bytes.len().min(wire.max_bytes)];
        let config = HexConfig { title: false, ..HexConfig::default() };
        let (id, dump) = (self.id(), shown.hex_conf(config));
        match shown.len() {
            0 => wire.say(format_args!("channel {id}: {what} {n} bytes")),
            all if all == n => wire.say(format_args!("channel {id}: {what} {n} bytes\n{dump:?}")),
            first => {
                wire.say(format_args!(
                    "channel {id}: {what} {n} bytes, of which the first {first}\n{dump:?}"
                ));
            }
        }
    }

    /// A copy of the first bytes that wait, or as many of them as so many slices hold.
    fn first_outbound(&self, n: usize) -> Vec<u8> {
        let mut first = Vec::with_capacity(n);
        if let Some(out) = self.outbound() {
            let mut slices = [IoSlice::new(&[]); 64];
            let filled = out.slices(&mut slices, n);
            for slice in &slices[..filled] {
                first.extend_from_slice(slice);
            }
        }
        first
    }
}

/// An event, as the log says it.
struct Told<'a>(&'a ChannelState, &'a Event);

impl fmt::Display for Told<'_> {
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
            Event::InputShutdown => f.write_str("the peer has ended its stream"),
            Event::Writability(true) => f.write_str("writable"),
            Event::Writability(false) => {
                write!(f, "not writable, {} bytes are pending", self.0.pending_bytes())
            }
            Event::Idle(IdleEvent { state, first }) => {
                write!(f, "idle: {state:?}{}", if *first { ", first" } else { "" })
            }
            Event::Shutdown => f.write_str("the event loop is shutting down"),
            Event::Error(error) => write!(f, "error: {error}"),
            Event::Inactive => f.write_str("inactive"),
            Event::StageTimer => f.write_str("a stage's timer"),
        }
    }
}
