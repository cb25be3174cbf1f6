//! Settings of a channel, on any transport.
//!
//! Invariant: every value of a [`ChannelConfig`] is within its range. One value is shared by all
//! channels of a server or of a client's target.

use super::max_connection_age::AgeLimit;
use crate::{
    buffer::{RECEIVE_SIZE, WaterMark},
    clock::nanos,
    error::Result,
    settings::{check_range, settings},
};
use std::{ops::Deref, sync::Arc, time::Duration};

settings! {
    /// The settings of a channel. A value out of range is reported when the bootstrap binds or
    /// connects.
    pub struct ChannelOptions {
        /// Sets the number of pending bytes at which writers pause and resume.
        water_mark(mark: WaterMark) = WaterMark::default(), "32 KiB / 64 KiB", always "1 ≤ low ≤ high",
            reached "`is_writable` turns false, `writability_changed` is called";
        /// Sets the limit of bytes that may wait to be sent. A write beyond the limit is handled by
        /// the [`overflow`](ChannelOptions::overflow) policy, unless the channel was writable when
        /// it was made: then one message of any length is accepted. Water marks above this limit
        /// are lowered, so that the channel is not writable at the limit.
        max_outbound(bytes: usize) = 16 * 1024 * 1024, "16 MiB", range 1.. => "1 byte or more",
            reached "what `overflow` says";
        /// Sets the policy for messages beyond `max_outbound`. By default they are refused.
        overflow(policy: Overflow) = Overflow::Refuse, "[`Overflow::Refuse`]";
        /// Sets the limit of bytes that are kept because they do not make a whole message yet.
        /// Codecs have limits of their own; this limit applies to all of them.
        max_inbound(bytes: usize) = 16 * 1024 * 1024, "16 MiB", range 1.. => "1 byte or more",
            reached "the channel is closed, because its codec needs more bytes than may be kept";
        /// Sets the number of [held](crate::Context::hold_input) input bytes at which the channel
        /// pauses and resumes reading.
        inbound_mark(mark: WaterMark) = WaterMark::of(256 * 1024, 1024 * 1024), "256 KiB / 1 MiB", always "1 ≤ low ≤ high",
            reached "with more [held](crate::Context::hold_input) bytes than high, reading pauses until they are below low";
        /// Sets whether bytes are read when they arrive (the default) or only after
        /// `Context::read`.
        auto_read(on: bool) = true, "on", reached "off: nothing is read until `Context::read`";
        /// Sets whether, with auto-read off, each [`read`](crate::Context::read) delivers one
        /// message instead of all messages of the bytes that are read for it. The remaining bytes
        /// are kept, and the next `read` decodes them first.
        one_message_per_read(on: bool) = false, "off",
            reached "on: `Context::read` delivers one message";
        /// Sets whether the channel pauses reading while it is not writable. Use this for echo
        /// servers, proxies, and other programs whose output grows with their input. Off by
        /// default: input is read, and replies wait up to
        /// [`max_outbound`](ChannelOptions::max_outbound).
        ///
        /// If both ends of a connection do this and both have much to send, each may wait for the
        /// other to read. To end such a deadlock, the channel gets a
        /// [`TimeLimits::write`](crate::channel::TimeLimits::write) of one minute unless one is
        /// set.
        read_while_writable(on: bool) = false, "off",
            reached "on: reading pauses while the channel is not writable";
        /// Sets whether the channel stays writable after the peer has ended its stream. The
        /// handler's [`read_closed`](crate::Handler::read_closed) is called and decides. Off by
        /// default: the channel closes after flushing pending writes.
        half_close(on: bool) = false, "off",
            reached "on: a peer that ends its stream can still be written to";
        /// Sets the largest number of bytes that one read from the socket returns.
        read_size(bytes: usize) = RECEIVE_SIZE, "64 KiB",
            range 1..=RECEIVE_SIZE => "1 to 65536 bytes",
            reached "the largest number of bytes of one read";
        /// Sets the number of reads from the socket in one turn of the loop. Remaining input is
        /// read in the next turn.
        reads_per_turn(reads: usize) = 16, "16", range 1.. => "1 or more",
            reached "the rest is read in the next turn, after the other channels";
        /// Sets the number of writes to the socket in one flush. Remaining output is written in the
        /// next turn.
        writes_per_turn(writes: usize) = 16, "16", range 1.. => "1 or more",
            reached "the rest is written in the next turn";
        /// Sets how long a closing channel waits for its peer to accept all pending bytes. During
        /// the remaining time its socket may
        /// [linger](crate::group::EventLoopGroupBuilder::max_lingering), until the peer has read
        /// them. The time counts from the close request. With zero there is neither a wait nor
        /// lingering.
        close_timeout(timeout: Duration) = Duration::from_secs(10), "10 s",
            reached "unsent bytes are dropped and the connection is reset, or a lingering socket is closed";
        /// Sets the limit of pending scheduled tasks and timeouts of a channel. The close timeout
        /// does not count.
        max_scheduled_tasks(tasks: usize) = 1024, "1024", range 1..=65_536 => "1 to 65536 tasks",
            reached "a further task is dropped, and `error` is called with [`Error::Full`](crate::Error::Full)";
        /// Sets the load-balancing weight of each connection
        /// ([`EventLoop::load`](crate::EventLoop::load)).
        weight(connections: u32) = 1, "1", range 1..=65_536 => "1 to 65536 connections";
    }
}

/// The largest high mark of held input. A program pauses reading by holding more bytes than that,
/// and the sum of many pauses must fit into 64 bits.
const MAX_INBOUND_MARK: usize = if usize::BITS > 32 { usize::MAX >> 16 } else { usize::MAX - 1 };

impl ChannelOptions {
    pub(crate) fn build(&self) -> Result<ChannelConfig> {
        self.check()?;
        // A producer pauses before the limit is reached.
        let water_mark = self.water_mark.capped(self.max_outbound - 1);
        let inbound_mark = self.inbound_mark.capped(MAX_INBOUND_MARK);
        Ok(ChannelConfig {
            certain_room: water_mark.certain_room(),
            close_timeout_ns: nanos(self.close_timeout),
            options: ChannelOptions { water_mark, inbound_mark, ..self.clone() },
            linger: None,
            handshake_timeout: nanos(HANDSHAKE_TIMEOUT),
            host: None,
            outgoing: false,
            max_age: None,
        })
    }
}

/// The policy for messages that do not fit into [`max_outbound`](ChannelOptions::max_outbound),
/// because the peer does not keep up.
///
/// A message that replaces a waiting one needs no policy: see
/// [`write_latest`](crate::Context::write_latest).
///
/// Dropped messages and closed channels are counted (`messages_dropped`, `closes_overflowed`). A
/// [`write_tracked`](crate::Context::write_tracked) of a dropped message fails with
/// [`Error::Full`](crate::Error::Full).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The write fails with [`Error::Full`](crate::Error::Full). A handle returns the message,
    /// unless it was [accepted](crate::Channel::write) already.
    #[default]
    Refuse,
    /// The message is dropped, and the write succeeds. For updates that the next message repeats.
    ///
    /// HTTP requests and responses are refused instead, because the peer pairs them by their order.
    /// Server-sent events are dropped.
    DropNewest,
    /// The oldest messages are dropped, until an eighth of the limit is free. For updates that
    /// become outdated. A message that is partly sent is kept. A message that is longer than the
    /// limit is refused.
    ///
    /// HTTP requests and responses are kept. The output of a
    /// [replaced](crate::Context::replace_pipeline) pipeline is kept too. If there is not enough
    /// room behind them, a new message is refused. Server-sent events are dropped like other
    /// messages.
    DropOldest,
    /// The channel closes immediately, drops pending messages and resets the connection. The write
    /// fails with [`Error::Full`](crate::Error::Full).
    Close,
}

/// Checked [`ChannelOptions`] with values derived from them.
#[derive(Debug)]
pub(crate) struct ChannelConfig {
    /// The options, with water marks that are below `max_outbound`.
    pub(crate) options: ChannelOptions,
    /// See [`WaterMark::certain_room`].
    pub(crate) certain_room: usize,
    /// `close_timeout` in nanoseconds.
    pub(crate) close_timeout_ns: u64,
    /// How long closing the socket waits for the peer, if `SO_LINGER` is set. Set by the code that
    /// opens the socket.
    pub(crate) linger: Option<Duration>,
    /// The time in which the filters must be established, in nanoseconds. Set by bootstraps.
    pub(crate) handshake_timeout: u64,
    /// The name that a client connects to. Filters that start later need it too.
    pub(crate) host: Option<Arc<str>>,
    /// Whether this side opens the connection. A shutdown ends such channels after the accepted
    /// channels.
    pub(crate) outgoing: bool,
    /// The maximum age, if the channel has one. Set by the bootstrap of a server.
    pub(crate) max_age: Option<AgeLimit>,
}

/// The default time in which the filters of a channel must be established.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the time for handshakes in nanoseconds.
///
/// # Errors
/// [`Error::Setting`] if the timeout is out of range.
pub(crate) fn check_handshake_timeout(timeout: Duration) -> Result<u64> {
    check_range("handshake_timeout", timeout, Duration::from_millis(1).., "1 ms or more")?;
    Ok(nanos(timeout))
}

impl Deref for ChannelConfig {
    type Target = ChannelOptions;

    #[inline]
    fn deref(&self) -> &ChannelOptions {
        &self.options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::check_limits_page;

    #[test]
    fn the_documentation_states_the_defaults() {
        for row in ChannelOptions::rows() {
            row.check_words();
            // These options limit nothing.
            let unlimited = [
                "overflow",
                "auto_read",
                "one_message_per_read",
                "read_while_writable",
                "half_close",
                "weight",
            ];
            if !unlimited.contains(&row.name) {
                check_limits_page("Limits of a channel", row.name, row.text);
            }
        }
    }
}
