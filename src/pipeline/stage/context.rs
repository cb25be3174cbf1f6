//! The operations of a stage's callbacks.

use super::Stage;
use crate::{
    admission::Work,
    channel::{Attributes, ChannelState, CloseCause, LoopServices, Mail, Push, ShutdownCause},
    clock::nanos,
    error::{Error, Overloaded, Result},
    id::ChannelId,
};
#[cfg(feature = "http")]
use std::num::NonZeroU32;
use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

/// The channel during a callback of stage `S`.
///
/// Nothing that is requested here calls back into the stage before the running callback has
/// returned.
#[doc(alias = "ChannelHandlerContext")]
pub struct StageContext<'a, S: Stage> {
    pub(in crate::pipeline) before: &'a mut dyn Push<S::WriteOut>,
    pub(in crate::pipeline) state: &'a mut ChannelState,
    pub(in crate::pipeline) services: &'a mut LoopServices,
    /// The position of the stage, counted from 1.
    pub(in crate::pipeline) position: u32,
}

impl<S: Stage> StageContext<'_, S> {
    // ---- output ----

    /// Writes a message towards the socket, through the links before this stage.
    ///
    /// # Errors
    /// The errors of [`Context::write`](crate::Context::write). The
    /// [overflow policy](crate::channel::Overflow) applies to the writes of handlers. A message
    /// that this stage writes by itself, for example in [`read`](Stage::read), is refused with
    /// [`Error::Full`] if the buffer is full. Under
    /// [`DropOldest`](crate::channel::Overflow::DropOldest), a later write may drop it.
    #[inline]
    pub fn write(&mut self, message: S::WriteOut) -> Result {
        self.before.push(self.state, self.services, message)
    }

    /// Writes a message that the channel's [overflow policy](crate::channel::Overflow) never drops.
    /// It is refused if the buffer is full. For protocols whose peer pairs messages by their order.
    #[cfg(feature = "http")]
    #[inline]
    pub(crate) fn write_kept(&mut self, message: S::WriteOut) -> Result {
        let written = self.write(message);
        match written {
            Ok(()) => self.state.keep_written(),
            Err(_) => self.state.refuse_overflow(),
        }
        written
    }

    /// Writes a message that is accepted even if the buffer is full. For a short message without
    /// which the peer would wait in a state that other messages do not expect.
    #[cfg(any(feature = "redis", feature = "websocket"))]
    pub(crate) fn write_beyond_limit(&mut self, message: S::WriteOut) -> Result {
        let limit = self.state.lift_limit_for_message();
        let written = self.write(message);
        self.state.outbound.restore_limit(limit);
        written
    }

    /// Requests that [`write`](Stage::write) is called with this message for each channel, also if
    /// a [`ChannelGroup`](crate::ChannelGroup) broadcasts it. Call this before anything that
    /// concerns this channel only, and return the error.
    ///
    /// A stage with an [`encoding_key`](Stage::encoding_key) needs this for messages that change
    /// its state. A message that ends the connection is an example.
    ///
    /// # Errors
    /// [`Error::Other`] if the message is being encoded for several channels. `write` is then
    /// called again, for each of them.
    pub fn encode_alone(&mut self) -> Result {
        if self.state.outbound.refuse_apart() {
            return Err(Error::other("the message is encoded for each channel"));
        }
        Ok(())
    }

    /// Closes the channel after pending bytes have been sent.
    pub fn close(&mut self) {
        self.state.request_close(CloseCause::Clean);
    }

    /// Closes the channel without sending pending bytes.
    pub fn close_now(&mut self) {
        self.state.request_close_now(CloseCause::Cut);
    }

    /// Like [`close_now`](StageContext::close_now), because of this error, which fails the writes
    /// that are not sent.
    pub(crate) fn close_now_because(&mut self, error: &Error) {
        self.state.outbound.note_error(|| error.clone());
        self.state.request_close_now(CloseCause::of_error(error));
    }

    /// Like [`close`](StageContext::close), for a reason that is not the end of the exchange.
    #[cfg(feature = "http")]
    pub(crate) fn close_because(&mut self, cause: CloseCause) {
        self.state.request_close(cause);
    }

    /// Returns why [`shutdown`](Stage::shutdown) was called: the last cause if it was called twice,
    /// and `None` before.
    pub fn shutdown_cause(&self) -> Option<ShutdownCause> {
        self.state.shutdown_cause()
    }

    /// Makes the reconnecting client of this channel wait for this time after the end of the
    /// channel.
    #[cfg(feature = "websocket")]
    pub(crate) fn reconnect_after(&mut self, delay: Duration) {
        self.state.set_reconnect_after(delay);
    }

    /// Returns whether no such time was set.
    #[cfg(feature = "websocket")]
    pub(crate) fn reconnects_at_once(&self) -> bool {
        self.state.reconnect_after().is_zero()
    }

    /// Refuses further messages of handles with [`Error::Closed`], because this stage ends the
    /// connection. The pipeline still writes.
    #[cfg(feature = "websocket")]
    pub(crate) fn refuse_handles(&mut self) {
        self.state.refuse_handles();
    }

    /// Announces that this stage closes the channel behind the next exchange, so that the default
    /// [`shutdown`](crate::Handler::shutdown) of the handler does not close it.
    #[cfg(feature = "http")]
    pub(crate) fn end_later(&mut self) {
        self.state.end_later();
    }

    /// Returns whether the channel is connected and no close was requested. After `shutdown_write`
    /// it is still open, although writes fail.
    pub fn is_open(&self) -> bool {
        self.state.status.is_open()
    }

    /// Returns whether the channel is open and its output has not ended.
    pub(crate) fn takes_writes(&self) -> bool {
        self.state.status.takes_writes()
    }

    /// Returns whether the pending bytes are within the channel's
    /// [water marks](crate::buffer::WaterMark). After `false`,
    /// [`writability_changed`](Stage::writability_changed) reports when they are again.
    pub fn is_writable(&self) -> bool {
        self.state.is_writable()
    }

    /// Returns the state of the last [`writability_changed`](Stage::writability_changed), or `true`
    /// before the first one. `true` follows `false` while the channel is open.
    #[cfg(feature = "http")]
    pub(crate) fn was_writable(&self) -> bool {
        self.state.was_writable()
    }

    /// Returns the number of encoded bytes that the kernel has not taken yet.
    pub fn pending_bytes(&self) -> usize {
        self.state.outbound.pending_bytes()
    }

    // ---- input ----

    /// Pauses reading until this stage calls [`resume_reading`](StageContext::resume_reading).
    ///
    /// No further message is decoded or delivered, and the socket is not read, so the peer
    /// experiences backpressure. Undecoded bytes and queued messages stay where they are. The peer
    /// is not late in the meantime: [time limits](crate::channel::TimeLimits) on input restart when
    /// reading resumes. The end of the peer's stream is reported after that too. A message that
    /// this callback returns is still delivered.
    ///
    /// Use this to handle one message at a time, for example while a worker checks a password, or
    /// until the response to an HTTP/1.1 request has been written. The codec is not called while
    /// reading is paused.
    ///
    /// Each stage pauses for itself, so reading resumes when no stage pauses it. A second call of
    /// the same stage is a no-op. Auto-read and reads that the handler has requested stay as they
    /// are, and take effect when reading resumes. The pause ends when the pipeline is replaced.
    pub fn pause_reading(&mut self) {
        self.state.pause_reading(self.position);
    }

    /// Like [`pause_reading`](StageContext::pause_reading), but notices a peer that goes away while
    /// reading is paused: the channel closes if the connection fails, and, without
    /// [`half_close`](crate::channel::ChannelOptions::half_close), if the peer ends its stream.
    /// Undecoded messages are dropped then, because the peer does not wait for an answer.
    #[cfg(feature = "http")]
    pub(crate) fn pause_reading_until_gone(&mut self) {
        self.state.pause_reading(self.position);
        self.state.watch_for_end(self.position);
    }

    /// Ends the pause of this stage. A no-op if it has not paused reading.
    ///
    /// Delivery resumes when the running callback has returned: immediately if the callback is
    /// part of a delivery, otherwise in the next turn, without waiting for further input.
    pub fn resume_reading(&mut self) {
        self.state.resume_reading(self.position, self.services.now);
    }

    /// Returns whether this stage has paused reading.
    pub fn is_paused(&self) -> bool {
        self.state.pauses_reads(self.position)
    }

    /// Returns whether the channel reads and the peer may still send, as
    /// [`Context::expects_input`](crate::Context::expects_input) does.
    pub fn expects_input(&self) -> bool {
        self.state.may_read() && !self.has_all_input()
    }

    /// Returns whether the peer has ended its stream.
    pub(crate) fn has_all_input(&self) -> bool {
        self.state.status.input_ended()
    }

    /// Returns whether the channel's [traffic limit](crate::traffic::TrafficLimits), and not the
    /// peer, has recently stopped reading.
    pub(crate) fn reading_was_held_up(&self) -> bool {
        self.state.was_held_up(crate::channel::shaping::Direction::Read)
    }

    /// Returns whether the channel's traffic limit, and not the peer, has recently stopped writing.
    pub(crate) fn writing_was_held_up(&self) -> bool {
        self.state.was_held_up(crate::channel::shaping::Direction::Write)
    }

    /// Returns the number of bytes that have been read but not decoded. They are the beginning of a
    /// message, unless reading is paused. During a delivery it is 0 or the number before it:
    /// [`read_complete`](Stage::read_complete) and [`timer`](Stage::timer) see the current number.
    pub fn undecoded_bytes(&self) -> usize {
        self.state.inbound.undecoded().len()
    }

    // ---- errors ----

    /// Reports an error: it goes to [`error`](Stage::error) of all stages and the handler, after
    /// the running callback has returned.
    ///
    /// Use this in [`write`](Stage::write), whose error is returned to the writer, or to report an
    /// error and still return a message. Elsewhere, return the error instead. Only the first error
    /// of a callback is reported this way.
    pub fn fail(&mut self, error: Error) {
        self.state.report(self.services, error);
    }

    // ---- identity and state ----

    /// Returns the number of the next request. The requests of a loop are numbered together,
    /// because a connection may have one pipeline after the other.
    #[cfg(feature = "http")]
    pub(crate) fn next_request(&mut self) -> NonZeroU32 {
        self.services.next_request()
    }

    /// Returns the channel's id.
    pub fn id(&self) -> ChannelId {
        self.state.id()
    }

    /// Returns the local address, if the transport has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.state.local_address()
    }

    /// Returns the address of the peer, if the transport has one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.state.peer_address()
    }

    /// Returns the time of this turn since the start of the loop.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.services.now)
    }

    /// Returns the time of day, at most one second old: exact to the second, and cheap enough for
    /// each message. On a [`ManualClock`](crate::testing::ManualClock), it moves with that clock.
    pub fn wall_time(&mut self) -> SystemTime {
        self.services.wall_time()
    }

    /// Returns when bytes were last read from the peer, on the time scale of
    /// [`now`](StageContext::now). Until then, returns when the channel was connected.
    pub fn last_read(&self) -> Duration {
        Duration::from_nanos(self.state.inbound.last_read())
    }

    /// Returns when the kernel last took bytes of this channel, on the time scale of
    /// [`now`](StageContext::now). Until then, returns when the channel was connected.
    pub fn last_written(&self) -> Duration {
        Duration::from_nanos(self.state.outbound.last_written())
    }

    /// Returns how long a closing channel waits for its peer to accept all pending bytes.
    #[cfg(feature = "websocket")]
    pub(crate) fn close_timeout(&self) -> Duration {
        Duration::from_nanos(self.state.config.close_timeout_ns)
    }

    /// Returns the channel's [`Attributes`], which its stages and its handler share.
    pub fn attributes(&self) -> &Attributes {
        self.state.extras.attributes()
    }

    /// Returns the channel's [`Attributes`], to insert or change values.
    pub fn attributes_mut(&mut self) -> &mut Attributes {
        self.state.extras.attributes_mut()
    }

    /// Asks whether the loop admits deferrable work, as
    /// [`Context::admit`](crate::Context::admit) does.
    ///
    /// # Errors
    /// [`Overloaded`](crate::error::Overloaded) with the time after which the client should try
    /// again.
    pub fn admit(&self, work: Work) -> Result<(), Overloaded> {
        self.services.admit(work)
    }

    /// Returns whether the loop has overload control.
    #[cfg(feature = "http")]
    #[inline]
    pub(crate) fn sheds_work(&self) -> bool {
        self.services.limits.is_some()
    }

    /// Returns a random number of nanoseconds below `window`, to spread timers.
    pub(crate) fn jitter(&self, window: u64) -> u64 {
        self.services.random.below(window)
    }

    /// Returns a function that requests a call of [`timer`](Stage::timer), for any thread.
    #[cfg_attr(
        not(any(feature = "http", feature = "redis")),
        expect(dead_code, reason = "for HTTP clients and the client of Redis")
    )]
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let (sender, channel) = (self.services.sender.clone(), self.state.key());
        // If the loop has ended, so has the channel.
        move || drop(sender.deliver(channel, Mail::WakeStages))
    }

    /// Requests a call of [`timer`](Stage::timer) after `delay`, or earlier if another stage of the
    /// channel requests that.
    ///
    /// The timer is never early for the stage with the earliest deadline, and late by at most one
    /// tick of the loop's wheel plus the loop's lag. All stages of a channel share one timer, which
    /// is disarmed when it expires. It takes no memory of its own, so it suits a stage that every
    /// connection has, such as [`Heartbeat`](crate::stage::Heartbeat). For a timer with a closure,
    /// use [`schedule`](StageContext::schedule).
    pub fn wake_after(&mut self, delay: Duration) {
        let now = self.services.now;
        self.state.wake_stages(now.saturating_add(nanos(delay)), now);
    }
}
