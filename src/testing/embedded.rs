//! A channel without a socket, for tests of pipelines.
//!
//! Always holds: it is an [`EmbeddedLoop`] with one channel, which is never removed; nothing happens but within a call of
//! its methods, on the calling thread; its time stands still until [`EmbeddedChannel::advance`].

use super::{EmbeddedLoop, ManualClock, MemoryTransport, slot::EmbeddedSlot};
use crate::{Channel, ChannelOptions, Error, Result, id::ChannelId, pipeline::Pipeline};
use bytes::Bytes;
use std::{fmt, marker::PhantomData, time::Duration};

/// A pipeline whose two ends are in the test's hands, on a manual clock.
///
/// Bytes go in with [`write_inbound`](EmbeddedChannel::write_inbound), bytes come out with
/// [`read_outbound`](EmbeddedChannel::read_outbound), time passes with [`advance`](EmbeddedChannel::advance). Its
/// [`channel`](EmbeddedChannel::channel) handle works from any thread; what it sends is handled by
/// [`run_pending`](EmbeddedChannel::run_pending), which the other methods call too.
///
/// A call runs passes, like the turns of a loop, until nothing is left to do at this time. `reads_per_turn` and
/// `writes_per_turn` interrupt the channel's I/O, and the next pass continues it. A task that schedules itself again
/// with no delay for ever never lets a call return.
///
/// ```
/// use netwheel::{codec::LengthField, prelude::*, testing::EmbeddedChannel};
///
/// struct Echo;
/// impl Handler for Echo {
///     type Read = bytes::Bytes;
///     type Write = bytes::Bytes;
///     fn read(&mut self, ctx: &mut Context<'_, Self>, frame: bytes::Bytes) -> Result {
///         ctx.write(frame)
///     }
/// }
///
/// let mut channel = EmbeddedChannel::new(Pipeline::codec(LengthField::u16()).handler(Echo));
/// channel.write_inbound(b"\0\x02hi\0\x04par")?;
/// assert_eq!(channel.read_outbound(), &b"\0\x02hi"[..]);
/// channel.write_inbound(b"t")?;
/// assert_eq!(channel.read_outbound(), &b"\0\x04part"[..]);
/// # Ok::<(), netwheel::Error>(())
/// ```
pub struct EmbeddedChannel<M> {
    event_loop: EmbeddedLoop,
    id: ChannelId,
    message: PhantomData<fn(M)>,
}

impl<M: 'static> EmbeddedChannel<M> {
    /// A connected channel with this pipeline: its handler's `active` has been called.
    pub fn new(pipeline: Pipeline<M>) -> Self {
        Self::of(EmbeddedLoop::new(), pipeline)
    }

    /// As [`new`](EmbeddedChannel::new), with settings, a clock that others may share, and the tick of the wheel
    /// that idle timeouts are kept on (1 ms otherwise).
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn with(
        pipeline: Pipeline<M>,
        options: &ChannelOptions,
        clock: ManualClock,
        wheel_tick: Duration,
    ) -> Result<Self> {
        Ok(Self::of(EmbeddedLoop::with(options, clock, wheel_tick)?, pipeline))
    }

    fn of(mut event_loop: EmbeddedLoop, pipeline: Pipeline<M>) -> Self {
        let id = event_loop.open(pipeline);
        EmbeddedChannel { event_loop, id, message: PhantomData }
    }

    /// A handle to the channel, of the message type of the pipeline that it was made with.
    pub fn channel(&mut self) -> Channel<M> {
        Channel::new(self.event_loop.share(self.id).expect("the channel is never removed"))
    }

    /// The clock that this channel runs on.
    pub fn clock(&self) -> &ManualClock {
        self.event_loop.clock()
    }

    /// Bytes from the peer, as one read; then whatever follows from them. No bytes are what a socket makes of a
    /// wake-up for nothing: a read that brings nothing.
    ///
    /// # Errors
    /// If the channel is closed.
    pub fn write_inbound(&mut self, bytes: &[u8]) -> Result {
        self.event_loop.write_inbound(self.id, bytes)
    }

    /// The peer ends its stream.
    pub fn end_inbound(&mut self) {
        self.event_loop.end_inbound(self.id);
    }

    /// The connection breaks with this error.
    pub fn fail_inbound(&mut self, error: std::io::Error) {
        let error = Error::io("reading", error);
        self.event_loop.act(self.id, |driver, io| {
            driver.call(io, |core, services| core.handle_io_error(services, error))
        });
    }

    /// All bytes that the pipeline has sent since the last call.
    pub fn read_outbound(&mut self) -> Bytes {
        self.slot_mut().sent(MemoryTransport::split_sent)
    }

    /// Limits what the peer takes from now on to `bytes`, like a socket whose buffer is nearly full; `None` lifts
    /// the limit.
    pub fn set_outbound_room(&mut self, bytes: Option<usize>) {
        self.event_loop.change(self.id, |transport| transport.set_room(bytes));
    }

    /// Moves the channel's time and runs what comes due, in order of time.
    ///
    /// Every deadline on the way is stopped at, so a callback sees the time at which it is due. The
    /// time ends after 584 years; see [`EmbeddedLoop::advance`].
    pub fn advance(&mut self, by: Duration) {
        self.event_loop.advance(by);
    }

    /// Moves the channel's time at once, like a loop that was held up; what is overdue then runs.
    /// Saturates after 584 years; later deadlines never come.
    pub fn stall(&mut self, by: Duration) {
        self.event_loop.stall(by);
    }

    /// Handles what waits: mail from handles, due tasks and timers, flushes, and work that was given to
    /// [`offload`](crate::Context::offload), of which no other method runs any; how much mail, timers and works that were.
    ///
    /// There are no worker threads here: the work runs now, on this thread, in the order in which it was given, and then the
    /// handler has the answers.
    pub fn run_pending(&mut self) -> usize {
        self.event_loop.run_pending()
    }

    /// Whether mail or work waits, or something is due now.
    pub fn has_pending(&self) -> bool {
        self.event_loop.has_pending()
    }

    /// Scheduled tasks and idle entries that wait for their time.
    pub fn timers(&self) -> usize {
        self.event_loop.timers()
    }

    /// How long until the next of them is due.
    pub fn next_timer(&self) -> Option<Duration> {
        self.event_loop.next_timer()
    }

    /// Bytes that are encoded and not yet taken.
    pub fn pending_bytes(&self) -> usize {
        self.slot().driver.core.state.pending_bytes()
    }

    /// Whether the peer was told that no more comes ([`shutdown_write`](crate::Context::shutdown_write)).
    pub fn is_output_ended(&self) -> bool {
        self.slot().driver.core.state.status.output_has_ended()
    }

    /// Whether the channel takes writes.
    pub fn is_open(&self) -> bool {
        self.event_loop.is_open(self.id)
    }

    /// Whether the channel is closed and its handler's `inactive` was called.
    pub fn is_closed(&self) -> bool {
        self.event_loop.is_closed(self.id)
    }

    /// Closes the channel, as a handle would, and drops every timer.
    pub fn close(&mut self) {
        self.event_loop.close(self.id);
    }
}

impl<M> EmbeddedChannel<M> {
    fn slot(&self) -> &EmbeddedSlot {
        self.event_loop.slot(self.id).expect("the channel is never removed")
    }

    fn slot_mut(&mut self) -> &mut EmbeddedSlot {
        self.event_loop.slot_mut(self.id).expect("the channel is never removed")
    }
}

impl<M> fmt::Debug for EmbeddedChannel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = &self.slot().driver.core;
        f.debug_struct("EmbeddedChannel")
            .field("handler", &core.handler_name())
            .field("open", &core.state.status.is_open())
            .finish_non_exhaustive()
    }
}
