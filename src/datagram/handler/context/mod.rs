//! The operations on a datagram channel while one of its callbacks or tasks runs.
//!
//! The rule is that of channels: a callback of handler `H` gets a `DatagramContext<'_, H>`. Code
//! that does not know the handler gets a context of the stand-in [`AnyDatagramHandler`]. All
//! methods are inherent.
//!
//! Runs on the channel's loop, and borrows the channel for the duration of one callback.

mod any_handler;
mod command;
mod task;

pub use any_handler::AnyDatagramHandler;
pub(in crate::datagram) use command::DatagramCommand;
pub(crate) use command::DatagramInbox;
pub(in crate::datagram) use task::{RemoteDatagramTask, run, run_periodic};

use super::DatagramHandler;
use crate::{
    channel::{Delay, LoopServices, Periodic, TaskKey, TaskTime},
    datagram::state::DatagramState,
    error::{Result, SendError},
    id::ChannelId,
    metrics::Metrics,
    transport::MulticastGroup,
};
use bytes::Bytes;
use std::{marker::PhantomData, net::SocketAddr, sync::Arc, time::Instant};

/// The datagram channel during a callback or task of handler `H`.
///
/// Sends datagrams, connects the channel, joins multicast groups, schedules tasks, and creates a
/// handle for other threads. No method calls the handler: events that a method causes follow when
/// the running callback has returned.
///
/// A function that is generic over the handler works in the callbacks of every handler. It also
/// works in the tasks of
/// [`DatagramChannel::execute`](crate::datagram::DatagramChannel::execute), which get a context of
/// [`AnyDatagramHandler`].
///
/// ```
/// use netwheel::{Result, datagram::{DatagramChannel, DatagramContext, DatagramHandler}};
///
/// fn greet<H: DatagramHandler>(ctx: &mut DatagramContext<'_, H>) -> Result {
///     Ok(ctx.write(format!("hello from {}", ctx.id()))?)
/// }
///
/// fn greet_from_any_thread(channel: &DatagramChannel) -> Result {
///     channel.execute(|ctx| greet(ctx))
/// }
/// ```
pub struct DatagramContext<'a, H: DatagramHandler> {
    pub(in crate::datagram) state: &'a mut DatagramState,
    pub(in crate::datagram) services: &'a mut LoopServices,
    metrics: &'a Metrics,
    pub(in crate::datagram) inbox: &'a Arc<DatagramInbox>,
    handler: PhantomData<fn(&mut H)>,
}

impl<'a, H: DatagramHandler> DatagramContext<'a, H> {
    pub(in crate::datagram) fn new(
        state: &'a mut DatagramState,
        services: &'a mut LoopServices,
        metrics: &'a Metrics,
        inbox: &'a Arc<DatagramInbox>,
    ) -> Self {
        DatagramContext { state, services, metrics, inbox, handler: PhantomData }
    }

    /// Returns the same context for another type of handler.
    pub(in crate::datagram) fn of<T: DatagramHandler>(self) -> DatagramContext<'a, T> {
        DatagramContext::new(self.state, self.services, self.metrics, self.inbox)
    }

    /// Returns the same context without the handler's type.
    ///
    /// Tasks that are scheduled on the result run without the handler.
    pub fn erase(&mut self) -> DatagramContext<'_, AnyDatagramHandler> {
        DatagramContext::new(&mut *self.state, &mut *self.services, self.metrics, self.inbox)
    }

    /// Sends a datagram to `to` immediately. If the kernel accepts no more at the moment, or
    /// earlier datagrams are queued, the datagram is queued while there is room.
    ///
    /// `Ok` does not mean that the datagram will arrive.
    ///
    /// # Errors
    /// - [`Io`](crate::Error::Io) if the system refuses the datagram, for example because the
    ///   address is unreachable or the datagram is longer than 65,507 bytes.
    /// - [`Full`](crate::Error::Full) if `max_outbound` bytes are pending, or the limit of pending
    ///   bytes of the loop or group is reached.
    /// - [`Closed`](crate::Error::Closed) if the channel is closing.
    ///
    /// The datagram is returned. Other datagrams are not affected.
    pub fn write_to(&mut self, datagram: impl Into<Bytes>, to: SocketAddr) -> Result<(), SendError<Bytes>> {
        let outbound = &mut self.services.outbound;
        let sent = self.state.send(outbound, self.metrics, datagram.into(), Some(to), None);
        sent.map_err(|(refused, _)| refused)
    }

    /// Returns whether a line about `topic` may be logged now. Use it to limit log lines that a
    /// peer can cause.
    ///
    /// Each loop allows 10 lines of each topic in 10 seconds, for all of its channels together. It
    /// counts further lines
    /// ([`log_lines_suppressed`](crate::metrics::LoopMetrics::log_lines_suppressed)). At the end of
    /// the 10 seconds it logs their number at level `warn`. See
    /// [`Context::may_log`](crate::Context::may_log).
    pub fn may_log(&self, topic: &'static str) -> bool {
        self.services.may_log(topic)
    }

    /// Sends a datagram to the peer of a connected channel. Otherwise like
    /// [`write_to`](DatagramContext::write_to).
    ///
    /// # Errors
    /// [`NotConnected`](crate::Error::NotConnected) if there is no peer. Otherwise the errors of
    /// [`write_to`](DatagramContext::write_to).
    pub fn write(&mut self, datagram: impl Into<Bytes>) -> Result<(), SendError<Bytes>> {
        let outbound = &mut self.services.outbound;
        let sent = self.state.send(outbound, self.metrics, datagram.into(), None, None);
        sent.map_err(|(refused, _)| refused)
    }

    /// Connects the channel to a peer, and replaces the present peer, if any. From then on the
    /// kernel only delivers datagrams from this peer, and reports if its port is closed. Datagrams
    /// that the kernel has already received are still delivered.
    ///
    /// If the channel is bound to an unspecified address (`0.0.0.0` or `[::]`), the system chooses
    /// its local address for the peer. Linux chooses again for another peer. The channel has no
    /// peer for a moment then, and may receive datagrams from other addresses.
    ///
    /// Queued datagrams for the previous peer are still sent to it. On systems where a connected
    /// socket cannot send to other addresses, such as macOS, they fail, and the failures are
    /// reported to the handler's `error`.
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed) if the channel is closing. Otherwise the error of the
    /// system.
    pub fn connect(&mut self, peer: SocketAddr) -> Result {
        self.state.connect(peer)
    }

    /// Removes the peer, so that datagrams from all addresses are delivered again. Queued datagrams
    /// for the peer are still sent to it. No-op if there is no peer. Linux and Android only.
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed) if the channel is closing. Otherwise the error of the
    /// system, which is `Unsupported` on other systems. The peer then stays.
    pub fn disconnect(&mut self) -> Result {
        self.state.disconnect()
    }

    /// Joins a multicast group. The channel then receives datagrams that are sent to the group and
    /// the channel's port.
    ///
    /// # Errors
    /// - [`Error::Setting`](crate::Error::Setting) if `group` is not a multicast group.
    /// - [`Error::Io`](crate::Error::Io) if the system refuses.
    /// - [`Error::Closed`](crate::Error::Closed) if the channel is closed.
    pub fn join(&mut self, group: MulticastGroup) -> Result {
        self.state.socket.as_ref().map_or(Err(crate::error::Error::Closed), |socket| socket.join(&group))
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// - [`Error::Setting`](crate::Error::Setting) if `group` is not a multicast group.
    /// - [`Error::Io`](crate::Error::Io) if the group was not joined, or the system refuses.
    /// - [`Error::Closed`](crate::Error::Closed) if the channel is closed.
    pub fn leave(&mut self, group: MulticastGroup) -> Result {
        self.state.socket.as_ref().map_or(Err(crate::error::Error::Closed), |socket| socket.leave(&group))
    }

    /// Closes the channel when this callback returns. Queued datagrams are sent until the kernel
    /// would block. The others are dropped and counted (`closes_unsent`). `inactive` is called
    /// later in the turn.
    pub fn close(&mut self) {
        self.state.closing = true;
        self.state.handle().set_closing();
    }

    /// Returns the id of the channel.
    pub fn id(&self) -> ChannelId {
        self.state.id
    }

    /// Returns the current local address. If the channel is connected, this is the address from
    /// which the peer is reached.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.state.socket.as_ref().and_then(|socket| socket.local_address().ok())
    }

    /// Returns the address of the peer, if the channel is connected.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.state.peer
    }

    /// Returns whether the channel accepts datagrams.
    pub fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Returns whether the next datagram goes to the kernel immediately, because none is queued.
    pub fn is_writable(&self) -> bool {
        self.is_open() && self.state.queue.is_empty()
    }

    /// Returns the weight of the queued datagrams: their bytes, plus 96 per datagram.
    pub fn pending_bytes(&self) -> usize {
        self.state.queue.weight()
    }

    /// Returns the time of this turn, on the loop's clock.
    pub fn now(&self) -> Instant {
        self.services.time.instant(self.services.now)
    }

    /// Schedules `task` to run on this loop after `delay`, with access to this handler. The task is
    /// dropped with the channel.
    ///
    /// Otherwise like [`Context::schedule`](crate::Context::schedule), including the limit of
    /// tasks.
    pub fn schedule(
        &mut self,
        delay: impl Into<Delay>,
        task: impl FnOnce(&mut H, &mut DatagramContext<'_, H>) -> Result + 'static,
    ) -> TaskKey {
        let when = TaskTime::after(delay.into(), self.services);
        self.state.schedule(self.services, when, task::DatagramTask::boxed(task))
    }

    /// Runs `task` with this handler on this loop again and again, as `periodic` says. A `Duration`
    /// is the period of a [fixed rate](Periodic::fixed_rate). The task ends with the channel, or
    /// when it returns an error.
    ///
    /// Works like [`Context::schedule_periodic`](crate::Context::schedule_periodic).
    ///
    /// # Errors
    /// The errors of [`Context::schedule_periodic`](crate::Context::schedule_periodic).
    pub fn schedule_periodic(
        &mut self,
        periodic: impl Into<Periodic>,
        task: impl FnMut(&mut H, &mut DatagramContext<'_, H>) -> Result + 'static,
    ) -> Result<TaskKey> {
        let task = task::PeriodicDatagramTask::boxed(task);
        self.state.schedule_periodic(self.services, periodic.into(), task)
    }

    /// Cancels a scheduled task, which is dropped immediately. Returns `false` if it has run, was
    /// cancelled, or is running.
    pub fn cancel(&mut self, task: TaskKey) -> bool {
        self.state.tasks.cancel(self.services, task)
    }
}
