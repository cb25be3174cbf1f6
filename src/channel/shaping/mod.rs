//! Traffic shaping: rate limits for one channel and for a group of channels.
//!
//! The driver asks the channel's `Shaper` before each read and each write how many bytes may move
//! (`ChannelState::allowance`), and reports how many did. So a limit is never exceeded and nothing
//! is queued twice. If no byte may move, the direction *waits*. It has reserved its next share in
//! the bucket in advance. One entry in the heap, for both directions, makes the driver continue
//! when the share is available; the wheel is too coarse for that. Until then an event only sets
//! `MAYBE_READABLE`. Waiting is a separate state, so neither auto-read nor `WRITE_BLOCKED` changes.
//!
//! Modules: `bucket` (a token bucket), `shared` (the bucket of many channels), `shaper` (the
//! shaping of one channel), `direction`. The settings are here.
//!
//! Invariants: bytes are counted at the socket, so order, water marks and limits of the outbound
//! buffer are those of any channel. A channel without shaping pays one test of a pointer for each
//! read or write.

mod bucket;
mod direction;
mod shaper;
mod shared;

pub(crate) use direction::Direction;
pub(in crate::channel) use shaper::Shaper;
pub use shared::SharedTraffic;

/// Rate limits for reading and writing, in bytes per second. A limit that is not set, or is set to
/// 0, is off.
///
/// Each direction has a token bucket. `burst` is the number of bytes that may move at once after an
/// idle period. By default it is the number of bytes of 100 ms, and it is never less than that of
/// 10 ms.
///
/// No byte beyond the limit is read from the socket or passed to it. TCP slows down a peer that
/// sends faster. Messages written in the meantime wait in the channel's buffer, in order. They
/// count against its [water marks](crate::buffer::WaterMark) and
/// [`max_outbound`](crate::channel::ChannelOptions::max_outbound) as usual. A channel that is
/// closing discards its input without these limits, in at most four reads per turn, because a peer
/// that is blocked in a write may not read our output.
///
/// When the bucket is empty, the channel pauses in that direction for the time of half a burst, but
/// at least 10 ms and at most 100 ms. If one byte takes longer than that, it pauses for the time of
/// one byte. Bytes that were read are delivered, and [`auto_read`](crate::Context::auto_read) does
/// not change. A graceful close sends pending bytes at the same rate, for at most
/// [`close_timeout`](crate::channel::ChannelOptions::close_timeout).
///
/// A peer is not late while the channel pauses: its [time limits](crate::channel::TimeLimits)
/// restart. [`IdleTimeouts`](crate::IdleTimeouts), however, measure the socket and also count
/// pauses. Set both to longer times than the pauses.
///
/// ```
/// # use netwheel::{traffic::{SharedTraffic, TrafficLimits}, codec::RawBytes, prelude::*};
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// // For all connections together, and for each of them.
/// let all = SharedTraffic::new(TrafficLimits::new().write(50_000_000));
/// let each = TrafficLimits::new().read(1_000_000).write(500_000).write_burst(64 * 1024);
/// let pipeline = move |_peer: &netwheel::Peer| {
///     Pipeline::codec(RawBytes).traffic(each.shared_with(&all)).handler(Echo)
/// };
/// # let group = EventLoopGroup::new()?;
/// # ServerBootstrap::new(&group).pipeline(pipeline).bind("127.0.0.1:0")?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct TrafficLimits {
    read: Rate,
    write: Rate,
}

/// A rate in bytes per second, and a burst in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    per_second: u64,
    burst: usize,
}

impl TrafficLimits {
    /// Returns settings without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limit of bytes per second that are read from the socket.
    pub fn read(mut self, bytes_per_second: u64) -> Self {
        self.read.per_second = bytes_per_second;
        self
    }

    /// Sets the limit of bytes per second that are passed to the kernel.
    pub fn write(mut self, bytes_per_second: u64) -> Self {
        self.write.per_second = bytes_per_second;
        self
    }

    /// Sets the number of bytes that may be read at once after an idle period.
    pub fn read_burst(mut self, bytes: usize) -> Self {
        self.read.burst = bytes;
        self
    }

    /// Sets the number of bytes that may be written at once after an idle period.
    pub fn write_burst(mut self, bytes: usize) -> Self {
        self.write.burst = bytes;
        self
    }

    /// Adds the limits of a group, which this channel shares with others.
    #[doc(alias = "within")]
    pub fn shared_with(self, group: &SharedTraffic) -> TrafficShaping {
        TrafficShaping { limits: self, shared: Some(group.clone()) }
    }

    /// Returns whether all limits are off.
    pub fn is_off(&self) -> bool {
        (self.read.per_second, self.write.per_second) == (0, 0)
    }

    fn of(&self, direction: Direction) -> Rate {
        match direction {
            Direction::Read => self.read,
            Direction::Write => self.write,
        }
    }
}

/// The traffic shaping of one channel: its own limits, those of a group, both or none.
///
/// Passed to [`PipelineBuilder::traffic`](crate::pipeline::PipelineBuilder::traffic) and
/// [`Context::set_traffic`](crate::Context::set_traffic), which also accept [`TrafficLimits`] and
/// [`SharedTraffic`].
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct TrafficShaping {
    limits: TrafficLimits,
    shared: Option<SharedTraffic>,
}

impl TrafficShaping {
    /// Returns the limits of the channel itself.
    pub fn limits(&self) -> TrafficLimits {
        self.limits
    }

    /// Returns the group whose limits the channel shares.
    pub fn shared(&self) -> Option<&SharedTraffic> {
        self.shared.as_ref()
    }

    /// Returns whether there is neither a limit nor a group.
    pub fn is_off(&self) -> bool {
        self.limits.is_off() && self.shared.is_none()
    }
}

impl From<TrafficLimits> for TrafficShaping {
    fn from(limits: TrafficLimits) -> Self {
        TrafficShaping { limits, shared: None }
    }
}

impl From<&SharedTraffic> for TrafficShaping {
    fn from(group: &SharedTraffic) -> Self {
        TrafficLimits::new().shared_with(group)
    }
}

impl From<SharedTraffic> for TrafficShaping {
    fn from(group: SharedTraffic) -> Self {
        Self::from(&group)
    }
}
