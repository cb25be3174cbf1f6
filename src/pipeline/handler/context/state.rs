//! The identity of the channel, its state, and handles to it.

use super::Context;
use crate::{
    admission::Work,
    channel::{Attributes, Channel, ChannelStats, CloseCause, MailSender, Peer, ShutdownCause},
    error::{Overloaded, Result},
    id::ChannelId,
    pipeline::handler::Handler,
};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

impl<H: Handler> Context<'_, H> {
    /// Returns a handle to this channel, for other channels and threads.
    pub fn channel(&self) -> Channel<H::Write> {
        Channel::new(self.state.share(self.services, self.links.size_hint()))
    }

    pub(crate) fn mail_sender(&self) -> &Arc<dyn MailSender> {
        &self.services.sender
    }

    /// Returns the id of the channel.
    pub fn id(&self) -> ChannelId {
        self.state.id()
    }

    /// Returns the address of this end, if the transport has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.state.local_address()
    }

    /// Returns the address of the other end, if the transport has one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.state.peer_address()
    }

    /// Returns whether the channel is connected and no close was requested. After `shutdown_write`
    /// it is still open, although writes fail.
    pub fn is_open(&self) -> bool {
        self.state.status.is_open()
    }

    /// Returns why the channel has ended, or `None` while it is not closed. In
    /// [`inactive`](Handler::inactive) it is always known.
    pub fn close_cause(&self) -> Option<CloseCause> {
        self.state.status.is_closed().then(|| self.state.close_cause())
    }

    /// Returns whether the channel is within its [water marks](crate::buffer::WaterMark), so that a
    /// producer may continue.
    ///
    /// [`Channel::is_writable`] shows the same state to other threads. While it is `true`, a write
    /// is not refused for its size. After `false`,
    /// [`writability_changed`](Handler::writability_changed) is called when the channel is writable
    /// again.
    pub fn is_writable(&self) -> bool {
        self.state.is_writable()
    }

    /// Returns the number of encoded bytes that the kernel has not taken yet.
    pub fn pending_bytes(&self) -> usize {
        self.state.outbound.pending_bytes()
    }

    /// Returns the time of this turn, by the loop's clock.
    pub fn now(&self) -> Instant {
        self.services.time.instant(self.services.now)
    }

    /// Reads the time of day from the loop's clock.
    #[cfg(feature = "simulation")]
    pub(crate) fn exact_wall_time(&self) -> std::time::SystemTime {
        self.services.time.wall_time()
    }

    /// Returns the traffic of the channel so far.
    pub fn stats(&self) -> ChannelStats {
        self.state.stats(&self.services.time)
    }

    /// Returns the values that are kept with the channel. They are dropped after `inactive`.
    pub fn attributes(&self) -> &Attributes {
        self.state.extras.attributes()
    }

    /// Returns the values that are kept with the channel, to add or change them.
    pub fn attributes_mut(&mut self) -> &mut Attributes {
        self.state.extras.attributes_mut()
    }

    /// Returns the peer, with what byte filters have stored about it. On a client it has the host
    /// name that was passed to `connect`.
    pub fn peer(&self) -> Peer {
        self.state.peer()
    }

    /// Returns why [`shutdown`](crate::Handler::shutdown) was called: the last cause if it was
    /// called twice, and `None` before.
    pub fn shutdown_cause(&self) -> Option<ShutdownCause> {
        self.state.shutdown_cause()
    }

    /// Makes the [reconnecting client](crate::ClientBootstrap::reconnect) of this channel wait for
    /// this time after the end of the channel, before the delay of its
    /// [`Backoff`](crate::reconnect::Backoff). The longest wait is
    /// [`max_hint_delay`](crate::reconnect::Backoff::max_hint_delay). Zero takes it back. Has no
    /// effect on other channels.
    ///
    /// Call this when the server asks the client to come back later. A
    /// [WebSocket client](crate::ClientBootstrap) does so for a Close frame of code 1012 or 1013.
    ///
    /// ```
    /// # use netwheel::{codec::Line, prelude::*};
    /// # use std::time::Duration;
    /// # struct Session;
    /// # impl Handler for Session {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, line: bytes::Bytes) -> Result {
    ///     let text = String::from_utf8_lossy(&line);
    ///     if let Some(seconds) = text.strip_prefix("busy, come back in ").and_then(|s| s.parse().ok()) {
    ///         ctx.reconnect_after(Duration::from_secs(seconds));
    ///         ctx.close();
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub fn reconnect_after(&mut self, delay: Duration) {
        self.state.set_reconnect_after(delay);
    }

    /// Returns whether a stage closes the channel behind the next response.
    pub(crate) fn ends_later(&self) -> bool {
        self.state.ends_later()
    }

    /// Returns the value that a byte filter of the channel has stored with
    /// [`FilterContext::set_info`](crate::filter::FilterContext::set_info).
    pub fn filter_info<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.state.extras.filter_info()
    }

    /// Asks whether the loop admits deferrable work, such as a login. Always admits it unless the
    /// group has an
    /// [`overload_target`](crate::group::EventLoopGroupBuilder::overload_target).
    ///
    /// Call this before the work begins, and send the hint of a refusal to the client. Work of one
    /// class should cost about the same each time, because admissions are counted.
    ///
    /// ```
    /// # use netwheel::{admission::Work, prelude::*};
    /// # struct Session;
    /// # impl Session {
    /// #   fn log_in(&mut self, _: bytes::Bytes) -> Result { Ok(()) }
    /// # }
    /// # impl Handler for Session {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, login: bytes::Bytes) -> Result {
    ///     if let Err(refused) = ctx.admit(Work::Login) {
    ///         let seconds = refused.retry_after().as_secs() + 1;
    ///         return ctx.write(format!("busy, come back in {seconds} s\n").into());
    ///     }
    ///     self.log_in(login)
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Overloaded`](crate::error::Overloaded) with the time after which the client should try
    /// again. It converts to [`Error::Overloaded`](crate::Error::Overloaded).
    pub fn admit(&self, work: Work) -> Result<(), Overloaded> {
        self.services.admit(work)
    }

    /// Returns whether a line about `topic` may be logged now. A rate limit for log lines that a
    /// peer can cause.
    ///
    /// Each loop allows 10 lines of each topic in 10 seconds, for all of its channels together. It
    /// counts further lines
    /// ([`log_lines_suppressed`](crate::metrics::LoopMetrics::log_lines_suppressed)). At the end of
    /// the 10 seconds it logs their number at level `warn`. The program's first 64 topics have
    /// separate limits; further topics share one. The loop's own log lines have the same limit.
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
}
