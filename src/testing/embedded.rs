//! A channel without a socket, for tests of pipelines.
//!
//! Invariants: it is an [`EmbeddedLoop`] with one channel, which is never removed. Everything
//! happens within a call of its methods, on the calling thread. Its time stands still until
//! [`EmbeddedChannel::advance`].

use super::{embedded_loop::EmbeddedLoop, memory_transport::MemoryTransport, slot::EmbeddedSlot};
use crate::{
    channel::{Channel, Pipeline},
    clock::ManualClock,
    error::{Error, Result},
    executor::Spawn,
    id::ChannelId,
};
use bytes::Bytes;
use std::{fmt, marker::PhantomData, time::Duration};

/// A channel without a socket, for testing a pipeline on a manual clock.
///
/// Pass input with [`write_inbound`](EmbeddedChannel::write_inbound), take output with
/// [`read_outbound`](EmbeddedChannel::read_outbound), and advance the time with
/// [`advance`](EmbeddedChannel::advance). The [`channel`](EmbeddedChannel::channel) handle works on
/// any thread. Its requests are handled by [`run_pending`](EmbeddedChannel::run_pending), which the
/// other methods call too.
///
/// A call runs passes, like the turns of a loop, until nothing is left to do at the current time.
/// `reads_per_turn` and `writes_per_turn` interrupt the channel's I/O, and the next pass continues
/// it. If a task keeps rescheduling itself without a delay, the call never returns.
///
/// Nothing happens between two calls. So waiting for a completion of the channel on its thread
/// fails with [`Error::WouldDeadlock`], as it does in a callback, unless it is done. Other threads
/// can wait.
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
    /// Creates a connected channel with this pipeline and default settings. The handler's `active`
    /// has been called when this returns.
    pub fn new(pipeline: Pipeline<M>) -> Self {
        Self::of(EmbeddedLoop::new(), pipeline)
    }

    pub(super) fn of(mut event_loop: EmbeddedLoop, pipeline: Pipeline<M>) -> Self {
        let id = event_loop.open(pipeline);
        EmbeddedChannel { event_loop, id, message: PhantomData }
    }

    /// Returns a handle to the channel, with the message type of its pipeline.
    pub fn channel(&mut self) -> Channel<M> {
        Channel::new(self.event_loop.share(self.id).expect("the channel is never removed"))
    }

    /// Returns the clock of this channel.
    pub fn clock(&self) -> &ManualClock {
        self.event_loop.clock()
    }

    /// Delivers bytes from the peer as one read, then runs everything that follows. An empty slice
    /// simulates a spurious wakeup: a read that returns no bytes.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closed, or if its inbound stream has ended.
    pub fn write_inbound(&mut self, bytes: &[u8]) -> Result {
        self.event_loop.write_inbound(self.id, bytes)
    }

    /// Ends the inbound stream, as if the peer had shut down its write half.
    pub fn end_inbound(&mut self) {
        self.event_loop.end_inbound(self.id);
    }

    /// Fails the connection with this error.
    pub fn fail_inbound(&mut self, error: std::io::Error) {
        let error = Error::io("reading", error);
        self.event_loop.act(self.id, |driver, io| {
            driver.call(io, |core, services| core.handle_io_error(services, error))
        });
    }

    /// Takes all bytes that the pipeline has sent since the last call.
    pub fn read_outbound(&mut self) -> Bytes {
        self.slot_mut().sent(MemoryTransport::split_sent)
    }

    /// Limits the number of bytes that the peer accepts from now on, like a socket with a nearly
    /// full send buffer. `None` removes the limit.
    pub fn set_outbound_room(&mut self, bytes: Option<usize>) {
        self.event_loop.change(self.id, |transport| transport.set_room(bytes));
    }

    /// Sets the executor of [`Context::spawn`](crate::Context::spawn). There is none otherwise.
    ///
    /// A test can implement [`Spawn`](crate::executor::Spawn) to keep the futures and poll them
    /// itself.
    pub fn set_executor(&mut self, executor: impl Spawn) {
        self.event_loop.set_executor(executor);
    }

    /// Sets whether the channel's loop refuses deferrable work, as
    /// [`EmbeddedLoop::set_overloaded`] does.
    ///
    /// ```
    /// use netwheel::{admission::Work, codec::Line, prelude::*, testing::EmbeddedChannel};
    ///
    /// let pipeline = Pipeline::codec(Line::new()).on_read(|ctx, line| match ctx.admit(Work::Login) {
    ///     Ok(()) => ctx.write(line),
    ///     Err(_) => ctx.close_with("busy".into()),
    /// });
    /// let mut channel = EmbeddedChannel::new(pipeline);
    /// channel.set_overloaded(true);
    /// channel.write_inbound(b"ann\n")?;
    /// assert_eq!(channel.read_outbound(), &b"busy\n"[..]);
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn set_overloaded(&mut self, on: bool) {
        self.event_loop.set_overloaded(on);
    }

    /// Advances the channel's time and runs everything that becomes due, in order of time.
    ///
    /// The clock stops at every deadline on the way, so a callback sees the time at which it is
    /// due. The time saturates after 584 years. See [`EmbeddedLoop::advance`].
    pub fn advance(&mut self, by: Duration) {
        self.event_loop.advance(by);
    }

    /// Advances the channel's time in one step, like a loop that was held up. Overdue timers run
    /// afterwards. Saturates after 584 years. Later deadlines never come.
    pub fn stall(&mut self, by: Duration) {
        self.event_loop.stall(by);
    }

    /// Handles everything that is pending: mail from handles, due tasks and timers, flushes, and
    /// work passed to [`offload`](crate::Context::offload). Only this method runs offloaded work.
    /// Returns the number of messages, timers and pieces of work that it has handled.
    ///
    /// There are no worker threads here. The work runs on the calling thread, in the order of
    /// submission, and the handler then receives the results.
    pub fn run_pending(&mut self) -> usize {
        self.event_loop.run_pending()
    }

    /// Returns whether mail, work or a due timer is pending.
    pub fn has_pending(&self) -> bool {
        self.event_loop.has_pending()
    }

    /// Returns the number of scheduled tasks and idle entries that are not due yet.
    pub fn timers(&self) -> usize {
        self.event_loop.timers()
    }

    /// Returns the time until the next scheduled task or idle entry is due.
    pub fn next_timer(&self) -> Option<Duration> {
        self.event_loop.next_timer()
    }

    /// Returns the number of encoded bytes that have not been sent yet.
    pub fn pending_bytes(&self) -> usize {
        self.slot().pending_bytes()
    }

    /// Returns whether the write half was shut down
    /// ([`shutdown_write`](crate::Context::shutdown_write)).
    pub fn is_output_ended(&self) -> bool {
        self.slot().has_ended_output()
    }

    /// Returns whether the channel accepts writes.
    pub fn is_open(&self) -> bool {
        self.event_loop.is_open(self.id)
    }

    /// Returns whether the channel is closed: its handler's `inactive` was called, and it was
    /// dropped.
    pub fn is_closed(&self) -> bool {
        self.event_loop.is_closed(self.id)
    }

    /// Closes the channel like [`Channel::close`]: pending writes are sent first. The timers of the
    /// channel end when it has closed. If output waits, that is when the output has been sent, or
    /// when the [close timeout](crate::channel::ChannelOptions::close_timeout) has passed.
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
        let slot = self.slot();
        f.debug_struct("EmbeddedChannel")
            .field("handler", &slot.handler_name())
            .field("open", &slot.is_open())
            .finish_non_exhaustive()
    }
}
