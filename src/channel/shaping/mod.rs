//! Traffic shaping: rate limits for one channel and for a group of channels.
//!
//! The driver asks the channel's `Shaper` before each read and each write how many bytes may move
//! (`ChannelState::allowance`), and reports how many did. So a limit is never exceeded and nothing
//! is queued twice. If no byte may move, the direction *waits*. It has reserved its next share in
//! the bucket in advance. One entry in the heap, for both directions, has the driver look again
//! when the share is available; the wheel is too coarse for that. Meanwhile an event only sets
//! `MAYBE_READABLE`. Waiting is a state of its own, so neither auto-read nor `WRITE_BLOCKED`
//! changes.
//!
//! Modules: `bucket` (a token bucket), `shared` (the bucket of many channels), `shaper` (what one
//! channel waits for), `direction`. The settings are here.
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

/// How many bytes a second may be read and written; what is not set, or set to 0, is not limited.
///
/// A token bucket for each direction. `burst` is what may move at once after quiet: what comes in 100 ms unless it is set, and
/// never less than comes in 10 ms.
///
/// No byte is read from the socket, and none offered to it, beyond the limit: a peer that sends faster is slowed down by
/// TCP, and what is written meanwhile waits in the channel's buffer, in order, and counts against its
/// [water marks](crate::buffer::WaterMark) and [`max_outbound`](crate::ChannelOptions::max_outbound) as ever. When the bucket
/// is empty the channel pauses in that direction for 10 to 100 ms (half a burst, if that is in between), or for the time of one
/// byte, if that is longer. What has been read is delivered, and [`auto_read`](crate::Context::auto_read) stays as the program
/// has set it. A graceful close sends what waits at the same rate, for at most
/// [`close_timeout`](crate::ChannelOptions::close_timeout).
///
/// A peer is not late while the channel pauses: its [time limits](crate::TimeLimits) begin anew then. Quiet ([`IdleTimeouts`](crate::IdleTimeouts)) is quiet of the socket, also if it is the limit that
/// keeps it so; let both be longer than the pauses.
///
/// ```
/// # use netwheel::{SharedTraffic, TrafficLimits, codec::RawBytes, prelude::*};
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

/// Bytes a second, and at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    per_second: u64,
    burst: usize,
}

impl TrafficLimits {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes a second that are read from the socket.
    pub fn read(mut self, bytes_per_second: u64) -> Self {
        self.read.per_second = bytes_per_second;
        self
    }

    /// Bytes a second that are given to the kernel.
    pub fn write(mut self, bytes_per_second: u64) -> Self {
        self.write.per_second = bytes_per_second;
        self
    }

    /// Bytes that may be read at once after quiet.
    pub fn read_burst(mut self, bytes: usize) -> Self {
        self.read.burst = bytes;
        self
    }

    /// Bytes that may be written at once after quiet.
    pub fn write_burst(mut self, bytes: usize) -> Self {
        self.write.burst = bytes;
        self
    }

    /// Adds the limits of a group, which this channel shares with others.
    #[doc(alias = "within")]
    pub fn shared_with(self, group: &SharedTraffic) -> TrafficShaping {
        TrafficShaping { limits: self, shared: Some(group.clone()) }
    }

    /// Whether there is no limit.
    pub fn is_off(&self) -> bool {
        (self.read.per_second, self.write.per_second) == (0, 0)
    }

    fn of(&self, way: Direction) -> Rate {
        match way {
            Direction::Read => self.read,
            Direction::Write => self.write,
        }
    }
}

/// What limits the traffic of one channel: limits of its own, those of a group, both or none.
///
/// Given to [`PipelineBuilder::traffic`](crate::pipeline::PipelineBuilder::traffic) and [`Context::set_traffic`](crate::Context::set_traffic), which take
/// [`TrafficLimits`] and [`SharedTraffic`] too.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct TrafficShaping {
    limits: TrafficLimits,
    shared: Option<SharedTraffic>,
}

impl TrafficShaping {
    /// The limits of the channel itself.
    pub fn limits(&self) -> TrafficLimits {
        self.limits
    }

    /// The group whose limits it shares.
    pub fn shared(&self) -> Option<&SharedTraffic> {
        self.shared.as_ref()
    }

    /// Whether there is neither a limit nor a group.
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
