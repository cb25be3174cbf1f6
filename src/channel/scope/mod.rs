//! The operations on a channel while one of its callbacks or tasks runs.
//!
//! Runs on the channel's loop, and borrows the channel for the length of one callback.
//! [`Context`](crate::Context) adds the handler's type.

mod input_guard;

pub use input_guard::InputGuard;

use super::{
    confirmation::Confirmation,
    extras::{Attributes, WireLog},
    handle::{Channel, ChannelStats, Mail},
    links::Push,
    services::LoopServices,
    shaping::TrafficShaping,
    state::{ChannelState, Pending},
    timers::TaskKey,
    watch::{IdleState, IdleTimeouts, TimeLimits},
};
use crate::{Result, clock::nanos, id::ChannelId, sync::Completion};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// A channel during one of its callbacks: write to it, flush, close, schedule.
///
/// Nothing that is asked for here calls back into the handler before the running callback has returned.
pub struct Scope<'a, M> {
    pub(crate) links: &'a mut dyn Push<M>,
    pub(crate) state: &'a mut ChannelState,
    pub(crate) services: &'a mut LoopServices,
}

/// A task that any thread may give to a channel.
pub(crate) struct ScopeTask<M>(ScopeClosure<M>);

type ScopeClosure<M> = Box<dyn FnOnce(&mut Scope<'_, M>) -> Result + Send>;

impl<M> ScopeTask<M> {
    pub(crate) fn new(task: impl FnOnce(&mut Scope<'_, M>) -> Result + Send + 'static) -> Self {
        ScopeTask(Box::new(task))
    }

    pub(crate) fn run(self, scope: &mut Scope<'_, M>) -> Result {
        (self.0)(scope)
    }
}

impl<M> Scope<'_, M> {
    /// Writes a message: encodes it now, sends it with everything else that is written in this turn.
    ///
    /// # Errors
    /// What the stages or the codec object to; [`Closed`](crate::Error::Closed) if the channel is closing;
    /// [`Full`](crate::Error::Full) if more than `max_outbound` bytes would wait, unless the channel was
    /// [writable](Scope::is_writable) before, or its [`overflow`](crate::ChannelOptions::overflow) says otherwise. Nothing of
    /// the message is sent then.
    #[inline]
    pub fn write(&mut self, message: M) -> Result {
        self.state.before_write();
        match self.links.push(self.state, self.services, message) {
            Ok(()) => {
                self.state.after_write(self.services);
                Ok(())
            }
            Err(error) => self.state.write_failed(self.services, error),
        }
    }

    /// Returns whether a line about `topic` may be logged now. A rate limit for log lines that a
    /// peer can cause.
    ///
    /// Each loop allows 10 lines of each topic in 10 seconds, for all of its channels together. It
    /// counts further lines ([`log_lines_suppressed`](crate::LoopMetrics::log_lines_suppressed)).
    /// At the end of the 10 seconds it logs their number at level `warn`. The program's first 64
    /// topics have separate limits; further topics share one. The loop's own log lines have the
    /// same limit.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # struct Member { rooms: usize }
    /// # impl Handler for Member {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, room: bytes::Bytes) -> Result {
    ///     if self.rooms == 100 {
    ///         if ctx.may_log("refused joins") {
    ///             log::warn!("channel {}: is in 100 rooms already", ctx.id());
    ///         }
    ///         return ctx.write("busy".into());
    ///     }
    ///     self.rooms += 1;
    ///     ctx.write(room)
    /// }
    /// # }
    /// ```
    pub fn may_log(&self, topic: &'static str) -> bool {
        self.services.may_log(topic)
    }

    /// As [`write`](Scope::write), and tells when the kernel has taken the last byte of the message.
    ///
    /// Answers come in the order of the writes, on the channel's loop. That the kernel has it does not mean that the peer
    /// has: for that the peer has to say so. A message that is encoded to no bytes is answered in its turn. When the
    /// channel closes first, the completion fails with the error that closed it, or with
    /// [`Closed`](crate::Error::Closed) if none did. A callback of the completion runs within the flush, but whatever it
    /// asks of the channel through its handle runs later.
    ///
    /// # Errors
    /// As [`write`](Scope::write); [`Full`](crate::Error::Full) also if 65,536 writes of the channel are not answered yet.
    pub fn write_tracked(&mut self, message: M) -> Result<Completion> {
        self.state.may_confirm()?;
        self.write(message)?;
        let (confirmation, completion) = Confirmation::new(self.state.id().event_loop);
        self.state.note_unanswered();
        self.state.confirm(confirmation);
        Ok(completion)
    }

    /// Sends what was written as soon as this callback returns, instead of when the channel has been read or, outside of
    /// [`read`](crate::Handler::read), at the end of the turn.
    ///
    /// In [`writability_changed`](crate::Handler::writability_changed), which a flush tells, it is part of that flush: what does
    /// not find room in its share ([`writes_per_turn`](crate::ChannelOptions::writes_per_turn)) is sent at the end of the
    /// turn, or in the next one.
    pub fn flush(&mut self) {
        self.state.status.set(Pending::FLUSH);
    }

    /// Ends the output: the peer sees the end of the stream after what was written before; what it sends is still read.
    ///
    /// Writes fail with [`Closed`](crate::Error::Closed) from here on. The channel closes when the peer ends its stream too.
    pub fn shutdown_write(&mut self) {
        self.state.request_end_of_output();
    }

    /// Closes the channel after what was written before is sent, at most `close_timeout` later.
    ///
    /// No message is read after this, and further input is discarded. `inactive` is called at the
    /// end of the turn in which everything is sent, never from within this call. The socket then
    /// [lingers](crate::EventLoopGroupBuilder::max_lingering) until the peer has read everything.
    pub fn close(&mut self) {
        self.state.request_close();
    }

    /// Writes a last message, for which there is room whatever waits, and closes as [`close`](Scope::close) does.
    ///
    /// For a peer that does not keep up: it still learns why it was closed, if it takes what waits before that within the
    /// `close_timeout`.
    ///
    /// # Errors
    /// What the stages or the codec object to, or [`Closed`](crate::Error::Closed) if the channel is closing already; it
    /// closes all the same.
    pub fn close_with(&mut self, message: M) -> Result {
        self.state.lift_outbound_limit();
        let written = self.write(message);
        self.close();
        written
    }

    /// Returns whether the channel reads and the peer may still send.
    pub(crate) fn expects_input(&self) -> bool {
        self.state.status.may_read() && !self.has_all_input()
    }

    /// Returns whether the peer has ended its stream.
    pub(crate) fn has_all_input(&self) -> bool {
        self.state.status.input_ended()
    }

    /// Closes the channel without sending what still waits.
    pub fn close_now(&mut self) {
        self.state.request_close_now();
    }

    /// Closes the channel at once with a reset, so that the peer sees an error and not the end of the stream: what a relay
    /// does when its other connection has broken.
    ///
    /// Drops the unsent bytes, also those in the kernel's send buffer. Unix sockets do not support
    /// resets; there this is [`close_now`](Scope::close_now).
    pub fn reset(&mut self) {
        self.state.request_reset();
    }

    /// A handle to this channel, for other channels and threads.
    pub fn channel(&mut self) -> Channel<M> {
        Channel::new(self.state.share(self.services, self.links.size_hint()))
    }

    /// The identity of the channel.
    pub fn id(&self) -> ChannelId {
        self.state.id()
    }

    /// The address of this end, if the transport has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.state.local_address()
    }

    /// The address of the other end, if the transport has one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.state.peer_address()
    }

    /// Whether the channel takes writes.
    pub fn is_open(&self) -> bool {
        self.state.status.is_open()
    }

    /// Whether a producer should go on, by the channel's [water marks](crate::buffer::WaterMark): the same state that
    /// [`Channel::is_writable`] shows to other threads. While it is `true` a write is never refused, whatever its size. After
    /// `false`, [`writability_changed`](crate::Handler::writability_changed) is called when the channel is writable again.
    pub fn is_writable(&self) -> bool {
        self.state.is_writable()
    }

    /// Bytes that are encoded and not yet taken by the kernel.
    pub fn pending_bytes(&self) -> usize {
        self.state.pending_bytes()
    }

    /// The time of this turn, by the loop's clock.
    pub fn now(&self) -> Instant {
        self.services.time.instant(self.services.now)
    }

    /// Whether bytes are read as they come.
    pub fn auto_read(&self) -> bool {
        self.state.status.auto_read()
    }

    /// Reads bytes as they come, or only when [`read`](Scope::read) asks. Off takes effect before the next
    /// message, also within one read; what is not yet decoded is kept.
    pub fn set_auto_read(&mut self, on: bool) {
        self.state.status.set_auto_read(on);
    }

    /// Asks for one read while auto-read is off: for the messages of the next bytes that come, or of those that
    /// are there; for one message, with [`one_message_per_read`](crate::ChannelOptions::one_message_per_read).
    ///
    /// Bytes that bring the handler no message do not use it up: it goes on with the next ones. Within a callback it is for
    /// what comes behind that callback. Asked for twice before anything came, it is one read. The end of the stream is read
    /// like bytes: not before it is asked for.
    pub fn read(&mut self) {
        self.state.status.want_read();
    }

    /// What the channel watches for quiet.
    pub fn idle_timeouts(&self) -> IdleTimeouts {
        self.state.idle_timeouts()
    }

    /// Changes what the channel watches for quiet. The quiet so far counts if the channel was watching before;
    /// otherwise it is counted from now.
    pub fn set_idle_timeouts(&mut self, timeouts: IdleTimeouts) {
        self.state.set_idle_timeouts(self.services, timeouts);
    }

    /// The time limits of the channel.
    pub fn time_limits(&self) -> TimeLimits {
        self.state.time_limits()
    }

    /// Changes the time limits of the channel. What has passed counts for a limit that was set before; another one counts
    /// from now.
    pub fn set_time_limits(&mut self, limits: TimeLimits) {
        self.state.set_time_limits(self.services, limits);
    }

    /// What limits the traffic of the channel.
    pub fn traffic(&self) -> TrafficShaping {
        self.state.traffic_shaping()
    }

    /// Changes what limits the traffic of the channel, from now on: [`TrafficLimits`](crate::TrafficLimits), a
    /// [`SharedTraffic`](crate::SharedTraffic), or both. What waited for the old limits goes by the new ones, when this
    /// callback has returned; with none it goes at once. What was used up of an own limit stays so.
    pub fn set_traffic(&mut self, shaping: impl Into<TrafficShaping>) {
        self.state.set_traffic_shaping(self.services, shaping.into());
    }

    /// Counts as traffic of every kind, without making the next idle event a first one: a sign of life that is not bytes,
    /// like a peer's entry in a database that was renewed. A few stores, whatever is watched.
    pub fn reset_idle(&mut self) {
        for kind in [IdleState::Reader, IdleState::Writer] {
            self.reset_idle_of(kind);
        }
    }

    /// Counts as traffic of one kind, without making the next idle event a first one.
    pub fn reset_idle_of(&mut self, kind: IdleState) {
        let now = self.services.now;
        self.state.reset_idle_of(kind, now);
    }

    /// What the channel has moved so far.
    pub fn stats(&self) -> ChannelStats {
        self.state.stats(&self.services.time)
    }

    /// Values that are kept with the channel; they can be read up to `inactive`, and go after it.
    pub fn attributes(&self) -> &Attributes {
        self.state.extras.attributes()
    }

    /// As [`attributes`](Scope::attributes), to keep some and change them.
    pub fn attributes_mut(&mut self) -> &mut Attributes {
        self.state.extras.attributes_mut()
    }

    /// Writes what the channel does to the log from now on, or no longer.
    pub fn set_wire_log(&mut self, wire_log: impl Into<Option<WireLog>>) {
        self.state.extras.set_wire_log(wire_log.into());
    }

    /// Cancels a scheduled task, a timeout or an offloaded work, which is dropped at once; false if it has run, was
    /// cancelled, or is running. Of a work that a worker has begun the answer is dropped.
    pub fn cancel(&mut self, task: TaskKey) -> bool {
        self.state.cancel(self.services, task)
    }

    pub(crate) fn schedule_any(&mut self, delay: Duration, task: Box<dyn std::any::Any>) -> TaskKey {
        // From now, not from the beginning of the turn: after a long callback that would be too early.
        let deadline = self.services.time.now().saturating_add(nanos(delay));
        self.state.schedule(self.services, deadline, task)
    }

    pub(crate) fn time_out_any(&mut self, delay: Duration, task: Box<dyn std::any::Any>) -> TaskKey {
        let deadline = self.services.now.saturating_add(nanos(delay));
        self.state.time_out(self.services, deadline, task)
    }
}

impl<M: 'static> Channel<M> {
    /// Runs `task` on the channel's loop, with what may be done to the channel there.
    ///
    /// # Errors
    /// If the channel is closed, its pipeline was replaced by one of another message type, or the loop's queue is full; the
    /// task is dropped.
    pub fn execute(&self, task: impl FnOnce(&mut Scope<'_, M>) -> Result + Send + 'static) -> Result {
        self.deliver(Mail::Run(Box::new(ScopeTask::new(task))))
    }

    /// Runs `task` on the channel's loop after `delay`; dropped with the channel if that is closed first, and with its
    /// pipeline if that is replaced.
    ///
    /// # Errors
    /// As [`execute`](Channel::execute).
    pub fn schedule(
        &self,
        delay: Duration,
        task: impl FnOnce(&mut Scope<'_, M>) -> Result + Send + 'static,
    ) -> Result {
        let deadline = self.shared().outlet.now().saturating_add(nanos(delay));
        self.deliver(Mail::Schedule(deadline, Box::new(ScopeTask::new(task))))
    }

    /// What the channel has moved so far; asked on its loop, behind what one thread asked of the channel before.
    ///
    /// The completion fails with [`Closed`](crate::Error::Closed) if the channel is, with [`Full`](crate::Error::Full) if the loop's queue
    /// is. What it had moved when it closed is known to its handler's [`inactive`](crate::Handler::inactive)
    /// ([`Scope::stats`]).
    pub fn stats(&self) -> Completion<ChannelStats> {
        let (confirmation, completion) = Confirmation::new(self.id().event_loop);
        let asked = self.execute(move |scope| {
            confirmation.complete(Ok(scope.stats()));
            Ok(())
        });
        match asked {
            Ok(()) => completion,
            Err(refused) => Completion::ready(Err(refused)),
        }
    }
}
