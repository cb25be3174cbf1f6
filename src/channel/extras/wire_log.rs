//! A channel's bytes and events in the log.
//!
//! Invariants: each event is logged once, when it happens, and logging changes nothing. Below the
//! log's level nothing is formatted or copied. Runs on the channel's loop, and takes as long as the
//! program's logger.

use super::log_level::LogLevel;
use crate::id::ChannelId;
use pretty_hex::{HexConfig, PrettyHex};
use std::{borrow::Cow, fmt};

/// Logs the events of a channel, and its bytes as a hex dump.
///
/// Passed to [`PipelineBuilder::wire_log`](crate::pipeline::PipelineBuilder::wire_log). A callback
/// can turn it on and off with [`Context::set_wire_log`](crate::Context::set_wire_log). It shows
/// the bytes that cross the socket: read from it, or accepted by the kernel. So several messages
/// may be one record, and a large message may be several records. Bytes that are discarded when a
/// channel closes are not shown. The events are those of the [`Handler`](crate::Handler), each
/// logged before it is called, and the requests `closing`, `closing now` and `ending the output`.
///
/// | setting | default | |
/// |---|---|---|
/// | `level` | `Debug` | |
/// | `target` | "netwheel::wire" | the target by which a logger filters |
/// | `plaintext` | off | with filters, for example TLS: the decrypted bytes too |
/// | `max_bytes` | 1024 of each record | 0 shows none; the number of bytes is always logged |
///
/// Logging takes as long as the program's logger, on the event loop. Use it for debugging, not for
/// every connection of a busy server. Passwords are logged like any other bytes.
///
/// ```
/// # use netwheel::{channel::{LogLevel, WireLog}, codec::LengthField, prelude::*};
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// let pipeline = Pipeline::codec(LengthField::u32())
///     .wire_log(WireLog::new().level(LogLevel::Trace))
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
    plaintext: bool,
}

impl Default for WireLog {
    fn default() -> Self {
        WireLog {
            level: log::Level::Debug,
            target: Cow::Borrowed("netwheel::wire"),
            max_bytes: 1024,
            plaintext: false,
        }
    }
}

impl WireLog {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the level of the records.
    pub fn level(mut self, level: LogLevel) -> Self {
        self.level = level.of_log();
        self
    }

    /// Sets the target of the records, by which a logger can filter them.
    pub fn target(mut self, target: impl Into<Cow<'static, str>>) -> Self {
        self.target = target.into();
        self
    }

    /// Sets the number of bytes of each record that are shown. The default is 1024.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Shows the decrypted bytes of a channel with filters as well (`opened`, `sealed and
    /// written`). Off by default: they are what TLS keeps secret. The bytes of the wire are always
    /// shown.
    pub fn plaintext(mut self, on: bool) -> Self {
        self.plaintext = on;
        self
    }

    pub(in crate::channel) fn shows_plaintext(&self) -> bool {
        self.plaintext
    }

    pub(in crate::channel) fn is_on(&self) -> bool {
        log::log_enabled!(target: &self.target, self.level)
    }

    pub(in crate::channel) fn say(&self, what: fmt::Arguments<'_>) {
        log::log!(target: &self.target, self.level, "{what}");
    }

    /// Returns the number of bytes of each record that are shown.
    pub(in crate::channel) fn shown(&self) -> usize {
        self.max_bytes
    }

    /// Logs that channel `id` has moved `n` bytes. `bytes` holds all of them, or the first
    /// [`shown`](WireLog::shown).
    pub(in crate::channel) fn dump(&self, id: ChannelId, what: &str, n: usize, bytes: &[u8]) {
        let shown = &bytes[..bytes.len().min(self.max_bytes)];
        let config = HexConfig { title: false, ..HexConfig::default() };
        let dump = shown.hex_conf(config);
        match shown.len() {
            0 => self.say(format_args!("channel {id}: {what} {n} bytes")),
            all if all == n => self.say(format_args!("channel {id}: {what} {n} bytes\n{dump:?}")),
            first => {
                self.say(format_args!(
                    "channel {id}: {what} {n} bytes, of which the first {first}\n{dump:?}"
                ));
            }
        }
    }
}
