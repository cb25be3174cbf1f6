//! Settings of a channel, on any transport.
//!
//! Invariant: every value of a [`ChannelConfig`] is within its range. One value is shared by all
//! channels of a bootstrap.

use crate::{
    Result,
    buffer::{RECEIVE_SIZE, WaterMark},
    clock::nanos,
    settings::settings,
};
use std::{ops::Deref, time::Duration};

settings! {
    /// Settings of a channel; refused values are reported when the bootstrap binds or connects.
    pub struct ChannelOptions {
        /// Where a writer pauses and resumes.
        water_mark(mark: WaterMark) = WaterMark::default(), "32 KiB / 64 KiB", always "1 ≤ low ≤ high",
            reached "`is_writable` turns false, `writability_changed` is called";
        /// Sets the number of bytes that may wait to be sent. A write beyond them meets with
        /// [`overflow`](ChannelOptions::overflow), unless the channel was writable when it was made: one message, however long,
        /// is always accepted then. Water marks above this limit are lowered, so that the channel is not writable at the limit.
        max_outbound(bytes: usize) = 16 * 1024 * 1024, "16 MiB", range 1.. => "1 byte or more",
            reached "what `overflow` says";
        /// What becomes of a message for which there is no room: it is refused, unless set otherwise.
        overflow(policy: Overflow) = Overflow::Refuse, "[`Overflow::Refuse`]";
        /// Bytes that may be kept because they do not make a whole message yet; codecs have limits of their own, this
        /// one holds for all of them.
        max_inbound(bytes: usize) = 16 * 1024 * 1024, "16 MiB", range 1.. => "1 byte or more",
            reached "the channel is closed: its codec waits for more than it may keep";
        /// How much of a channel's input the program may [hold](crate::Context::hold_input) before the channel pauses its reading.
        inbound_mark(mark: WaterMark) = WaterMark::of(256 * 1024, 1024 * 1024), "256 KiB / 1 MiB", always "1 ≤ low ≤ high",
            reached "with more [held](crate::Context::hold_input) than high, reading pauses until it is less than low";
        /// Whether bytes are read as they come (the default) or only when `Context::read` asks for them.
        auto_read(on: bool) = true, "on", reached "off: nothing is read until `Context::read`";
        /// Whether, with auto-read off, each [`read`](crate::Context::read) brings one message and not all those of the bytes
        /// that are read for it. What came with that one is kept, and the next `read` looks there first.
        one_message_per_read(on: bool) = false, "off",
            reached "on: `Context::read` brings one message";
        /// Whether the channel pauses its reading while it is not writable: for an echo, a proxy, and whatever else answers each
        /// message with as much. Off (the default), what comes is read, and answers wait up to
        /// [`max_outbound`](ChannelOptions::max_outbound).
        ///
        /// Two ends that both do so, and both have much to send, may each wait for the other to read. So a channel whose
        /// [`TimeLimits::write`](crate::TimeLimits::write) is off has one of a minute then: it ends such a wait.
        read_while_writable(on: bool) = false, "off",
            reached "on: reading pauses while the channel is not writable";
        /// Whether a peer that ends its stream can still be written to: its handler is told
        /// ([`read_closed`](crate::Handler::read_closed)) and decides. Off (the default), the channel closes then, after
        /// what was written is sent.
        half_close(on: bool) = false, "off",
            reached "on: a peer that ends its stream can still be written to";
        /// Bytes that one read from the socket takes at most.
        read_size(bytes: usize) = RECEIVE_SIZE, "64 KiB",
            range 1..=RECEIVE_SIZE => "1 to 65536 bytes",
            reached "bytes that one read takes at most";
        /// Reads from the socket in one turn of the loop; what is left is read in the next one.
        reads_per_turn(reads: usize) = 16, "16", range 1.. => "1 or more",
            reached "the rest is read in the next turn, after the other channels";
        /// Writes to the socket in one flush; what is left is written in the next turn.
        writes_per_turn(writes: usize) = 16, "16", range 1.. => "1 or more",
            reached "the rest is written in the next turn";
        /// Sets how long a closing channel waits for its peer to take all pending bytes. The rest of
        /// this time its socket may [linger](crate::EventLoopGroupBuilder::max_lingering), until the
        /// peer has read them. The time counts from the close request. With zero there is neither a
        /// wait nor lingering.
        close_timeout(timeout: Duration) = Duration::from_secs(10), "10 s",
            reached "unsent bytes are dropped, and a lingering socket is closed";
        /// Scheduled tasks and timeouts of a channel that may wait for their time, the close timeout not among them.
        max_scheduled_tasks(tasks: usize) = 1024, "1024", range 1..=65_536 => "1 to 65536 tasks",
            reached "a task that is scheduled beyond them is dropped, and `error` is told [`Error::Full`](crate::Error::Full)";
        /// As how many connections this one counts where connections are spread over loops: more for a heavy one
        /// ([`EventLoop::load`](crate::EventLoop::load)).
        weight(connections: u32) = 1, "1", range 1..=65_536 => "1 to 65536 connections";
    }
}

impl ChannelOptions {
    pub(crate) fn build(&self) -> Result<ChannelConfig> {
        self.check()?;
        // A producer pauses before the limit is reached.
        let water_mark = self.water_mark.capped(self.max_outbound - 1);
        Ok(ChannelConfig {
            certain_room: water_mark.certain_room(),
            close_timeout_ns: nanos(self.close_timeout),
            options: ChannelOptions { water_mark, ..self.clone() },
            linger: None,
        })
    }
}

/// What becomes of a message that is written to a channel whose peer does not keep up, so that
/// [`max_outbound`](ChannelOptions::max_outbound) bytes wait.
///
/// What is dropped is counted (`messages_dropped`, `closes_overflowed`), and a
/// [`write_tracked`](crate::Context::write_tracked) for it fails with [`Error::Full`](crate::Error::Full).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The write fails with [`Error::Full`](crate::Error::Full); through a handle the message is handed back, unless it was
    /// [on its way](crate::Channel::write) already.
    #[default]
    Refuse,
    /// The message is dropped, and the write succeeds: for news that the next message repeats.
    DropNewest,
    /// The oldest messages are dropped, until an eighth of the limit is free: for news that grow old. One of which the
    /// kernel has a byte is sent whole. A message that is longer than the limit is refused.
    DropOldest,
    /// The channel closes at once and drops what waits; the write fails with [`Error::Full`](crate::Error::Full).
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
    /// How long closing the socket waits for the peer, if it does; whoever opens the socket sets it.
    pub(crate) linger: Option<Duration>,
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
