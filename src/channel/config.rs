//! Settings of a channel, whatever carries its bytes.
//!
//! Always holds for a [`ChannelConfig`]: every value is within its range. One is shared by all channels that a
//! bootstrap makes.

use crate::{Error, Result, buffer::WaterMark, clock::nanos};
use std::time::Duration;

/// Settings of a channel; refused values are reported when the bootstrap binds or connects.
///
/// | setting | default | range | when it is reached |
/// |---|---|---|---|
/// | `water_mark` | 32 KiB / 64 KiB | 1 ≤ low ≤ high | `is_writable` turns false, `writability_changed` is called |
/// | `max_outbound` | 16 MiB | 1 B or more | what `overflow` says |
/// | `overflow` | [`Overflow::Refuse`] | | |
/// | `max_inbound` | 16 MiB | 1 B or more | the channel is closed: its codec waits for more than it may keep |
/// | `inbound_mark` | 256 KiB / 1 MiB | 1 ≤ low ≤ high | with more [held](crate::Scope::hold) than high, reading pauses until it is less than low |
/// | `auto_read` | on | | off: nothing is read until `Context::read` |
/// | `one_message_per_read` | off | | on: `Context::read` brings one message |
/// | `read_while_writable` | off | | on: reading pauses while the channel is not writable |
/// | `half_close` | off | | on: a peer that ends its stream can still be written to |
/// | `read_size` | 64 KiB | 1 B to 64 KiB | bytes that one read takes at most |
/// | `reads_per_turn` | 16 | 1 or more | the rest is read in the next turn, after the other channels |
/// | `writes_per_turn` | 16 | 1 or more | the rest is written in the next turn |
/// | `close_timeout` | 10 s | 0 or more | unsent bytes are dropped, and a lingering socket is closed |
/// | `max_scheduled_tasks` | 1024 | 1 to 65,536 | a task that is scheduled beyond them is dropped, and `error` is told [`Error::Full`] |
/// | `weight` | 1 | 1 to 65,536 | |
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    water_mark: WaterMark,
    max_outbound: usize,
    overflow: Overflow,
    max_inbound: usize,
    inbound_mark: WaterMark,
    auto_read: bool,
    one_message_per_read: bool,
    read_while_writable: bool,
    half_close: bool,
    read_size: usize,
    reads_per_turn: usize,
    writes_per_turn: usize,
    close_timeout: Duration,
    max_scheduled_tasks: usize,
    weight: u32,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        ChannelOptions {
            water_mark: WaterMark::default(),
            max_outbound: 16 * 1024 * 1024,
            overflow: Overflow::Refuse,
            max_inbound: 16 * 1024 * 1024,
            inbound_mark: WaterMark::of(256 * 1024, 1024 * 1024),
            auto_read: true,
            one_message_per_read: false,
            read_while_writable: false,
            half_close: false,
            read_size: crate::buffer::RECEIVE_SIZE,
            reads_per_turn: 16,
            writes_per_turn: 16,
            close_timeout: Duration::from_secs(10),
            max_scheduled_tasks: 1024,
            weight: 1,
        }
    }
}

impl ChannelOptions {
    /// The defaults of the table above.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where a writer pauses and resumes.
    pub fn water_mark(mut self, mark: WaterMark) -> Self {
        self.water_mark = mark;
        self
    }

    /// Sets the number of bytes that may wait to be sent. A write beyond them meets with
    /// [`overflow`](ChannelOptions::overflow), unless the channel was writable when it was made: one message, however long,
    /// is always accepted then. Water marks above this limit are lowered, so that the channel is not writable at the limit.
    pub fn max_outbound(mut self, bytes: usize) -> Self {
        self.max_outbound = bytes;
        self
    }

    /// What becomes of a message for which there is no room: it is refused, unless set otherwise.
    pub fn overflow(mut self, policy: Overflow) -> Self {
        self.overflow = policy;
        self
    }

    /// Bytes that may be kept because they do not make a whole message yet; codecs have limits of their own, this
    /// one holds for all of them.
    pub fn max_inbound(mut self, bytes: usize) -> Self {
        self.max_inbound = bytes;
        self
    }

    /// How much of a channel's input the program may [hold](crate::Scope::hold) before the channel pauses its reading.
    pub fn inbound_mark(mut self, mark: WaterMark) -> Self {
        self.inbound_mark = mark;
        self
    }

    /// Whether bytes are read as they come (the default) or only when `Context::read` asks for them.
    pub fn auto_read(mut self, on: bool) -> Self {
        self.auto_read = on;
        self
    }

    /// Whether, with auto-read off, each [`read`](crate::Scope::read) brings one message and not all those of the bytes
    /// that are read for it. What came with that one is kept, and the next `read` looks there first.
    pub fn one_message_per_read(mut self, on: bool) -> Self {
        self.one_message_per_read = on;
        self
    }

    /// Whether the channel pauses its reading while it is not writable: for an echo, a proxy, and whatever else answers each
    /// message with as much. Off (the default), what comes is read, and answers wait up to
    /// [`max_outbound`](ChannelOptions::max_outbound).
    ///
    /// Two ends that both do so, and both have much to send, may each wait for the other to read. So a channel whose
    /// [`TimeLimits::write`](crate::TimeLimits::write) is off has one of a minute then: it ends such a wait.
    pub fn read_while_writable(mut self, on: bool) -> Self {
        self.read_while_writable = on;
        self
    }

    /// Whether a peer that ends its stream can still be written to: its handler is told
    /// ([`input_shutdown`](crate::Handler::input_shutdown)) and decides. Off (the default), the channel closes then, after
    /// what was written is sent.
    pub fn half_close(mut self, on: bool) -> Self {
        self.half_close = on;
        self
    }

    /// Bytes that one read from the socket takes at most.
    pub fn read_size(mut self, bytes: usize) -> Self {
        self.read_size = bytes;
        self
    }

    /// Reads from the socket in one turn of the loop; what is left is read in the next one.
    pub fn reads_per_turn(mut self, reads: usize) -> Self {
        self.reads_per_turn = reads;
        self
    }

    /// Writes to the socket in one flush; what is left is written in the next turn.
    pub fn writes_per_turn(mut self, writes: usize) -> Self {
        self.writes_per_turn = writes;
        self
    }

    /// Sets how long a closing channel waits for its peer to take all pending bytes. The rest of
    /// this time its socket may [linger](crate::EventLoopGroupBuilder::max_lingering), until the
    /// peer has read them. The time counts from the close request. With zero there is neither a
    /// wait nor lingering.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }

    /// Scheduled tasks and timeouts of a channel that may wait for their time, the close timeout not among them.
    pub fn max_scheduled_tasks(mut self, tasks: usize) -> Self {
        self.max_scheduled_tasks = tasks;
        self
    }

    /// As how many connections this one counts where connections are spread over loops: more for a heavy one
    /// ([`EventLoop::load`](crate::EventLoop::load)).
    pub fn weight(mut self, connections: u32) -> Self {
        self.weight = connections;
        self
    }

    pub(crate) fn build(&self) -> Result<ChannelConfig> {
        if self.max_outbound == 0 {
            return Err(Error::setting("max_outbound", 0, "1 byte or more"));
        }
        if self.max_inbound == 0 {
            return Err(Error::setting("max_inbound", 0, "1 byte or more"));
        }
        if !(1..=crate::buffer::RECEIVE_SIZE).contains(&self.read_size) {
            return Err(Error::setting("read_size", self.read_size, "1 to 65536 bytes"));
        }
        if self.reads_per_turn == 0 {
            return Err(Error::setting("reads_per_turn", 0, "1 or more"));
        }
        if self.writes_per_turn == 0 {
            return Err(Error::setting("writes_per_turn", 0, "1 or more"));
        }
        if !(1..=65_536).contains(&self.max_scheduled_tasks) {
            return Err(Error::setting("max_scheduled_tasks", self.max_scheduled_tasks, "1 to 65536 tasks"));
        }
        if !(1..=65_536).contains(&self.weight) {
            return Err(Error::setting("weight", self.weight, "1 to 65536 connections"));
        }
        // A producer pauses before the limit is reached.
        let water_mark = self.water_mark.capped(self.max_outbound - 1);
        Ok(ChannelConfig {
            water_mark,
            certain_room: water_mark.certain_room(),
            max_outbound: self.max_outbound,
            overflow: self.overflow,
            max_inbound: self.max_inbound,
            inbound_mark: self.inbound_mark,
            auto_read: self.auto_read,
            one_message_per_read: self.one_message_per_read,
            read_while_writable: self.read_while_writable,
            half_close: self.half_close,
            read_size: self.read_size,
            reads_per_turn: self.reads_per_turn,
            writes_per_turn: self.writes_per_turn,
            close_timeout: nanos(self.close_timeout),
            max_scheduled_tasks: self.max_scheduled_tasks,
            weight: self.weight,
            linger: None,
        })
    }
}

/// What becomes of a message that is written to a channel whose peer does not keep up, so that
/// [`max_outbound`](ChannelOptions::max_outbound) bytes wait.
///
/// What is dropped is counted (`messages_dropped`, `closes_overflowed`), and a
/// [`write_notify`](crate::Scope::write_notify) for it fails with [`Error::Full`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The write fails with [`Error::Full`]; through a handle the message is handed back, unless it was
    /// [on its way](crate::Channel::write) already.
    #[default]
    Refuse,
    /// The message is dropped, and the write succeeds: for news that the next message repeats.
    DropNewest,
    /// The oldest messages are dropped, until an eighth of the limit is free: for news that grow old. One of which the
    /// kernel has a byte is sent whole. A message that is longer than the limit is refused.
    DropOldest,
    /// The channel closes at once and drops what waits; the write fails with [`Error::Full`].
    Close,
}

/// [`ChannelOptions`], checked.
#[derive(Debug)]
pub(crate) struct ChannelConfig {
    pub(crate) water_mark: WaterMark,
    /// See [`WaterMark::certain_room`].
    pub(crate) certain_room: usize,
    pub(crate) max_outbound: usize,
    pub(crate) overflow: Overflow,
    pub(crate) max_inbound: usize,
    pub(crate) inbound_mark: WaterMark,
    pub(crate) auto_read: bool,
    pub(crate) one_message_per_read: bool,
    pub(crate) read_while_writable: bool,
    pub(crate) half_close: bool,
    pub(crate) read_size: usize,
    pub(crate) reads_per_turn: usize,
    pub(crate) writes_per_turn: usize,
    pub(crate) close_timeout: u64,
    pub(crate) max_scheduled_tasks: usize,
    pub(crate) weight: u32,
    /// How long closing the socket waits for the peer, if it does; whoever opens the socket sets it.
    pub(crate) linger: Option<Duration>,
}
