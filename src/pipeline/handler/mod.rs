//! The handler trait: the program's own logic.

mod context;

pub use context::{AnyHandler, ChannelContext, Context};
pub(super) use context::{
    RemotePeriodicTask, RemoteTask, run_as, run_as_any, run_periodic_as, run_periodic_as_any,
};

use crate::{
    channel::IdleEvent,
    error::{Error, Result},
    log_throttle::log_throttled,
};

/// The program's logic for one channel; the last link of every [`Pipeline`](crate::Pipeline).
///
/// One instance serves one channel. It is created, called and dropped on the channel's loop. So it
/// needs neither `Send` nor locks, and no callback may block. Blocking work goes to
/// [`offload`](Context::offload), async code to [`spawn`](Context::spawn).
///
/// The first call is `active`. Then `read`, `read_complete`, `writability_changed`, `idle`,
/// `error`, `read_closed`, `shutdown` and tasks follow in any order. The last call is `inactive`.
/// Callbacks are never nested. A handler whose pipeline is [replaced](Context::replace_pipeline) is
/// dropped without a call of `inactive`.
///
/// An `Err` that a callback returns goes to [`error`](Handler::error). A panic is caught and goes
/// there as well; the channel then closes whatever `error` does. Other channels are not affected.
///
/// ```
/// use netwheel::prelude::*;
///
/// struct Echo;
///
/// impl Handler for Echo {
///     type Read = bytes::Bytes;
///     type Write = bytes::Bytes;
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, message: bytes::Bytes) -> Result {
///         ctx.write(message)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a handler",
    note = "implement `netwheel::Handler` for it, or pass a closure to `.on_read(|ctx, message| ..)`"
)]
#[doc(alias = "ChannelInboundHandler")]
#[doc(alias = "SimpleChannelInboundHandler")]
#[allow(unused_variables, reason = "default methods ignore their arguments")]
pub trait Handler: Sized + 'static {
    /// The messages that the previous link delivers.
    type Read: 'static;
    /// The messages that this handler writes.
    type Write: 'static;

    /// Called once, when the channel is connected.
    ///
    /// # Errors
    /// An error goes to [`error`](Handler::error).
    #[doc(alias = "channelActive")]
    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        Ok(())
    }

    /// Called for each message.
    ///
    /// # Errors
    /// An error goes to [`error`](Handler::error). If that leaves the channel open, the next
    /// message is delivered.
    #[doc(alias = "channelRead")]
    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Self::Read) -> Result;

    /// Called when the available bytes have been read and decoded, also if they contained no whole
    /// message.
    ///
    /// # Errors
    /// An error goes to [`error`](Handler::error).
    #[doc(alias = "channelReadComplete")]
    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        Ok(())
    }

    /// Called when the channel stops being writable (`writable` is `false`), and when it is
    /// writable again (`true`), in turn.
    ///
    /// What counts is described in [`Channel::is_writable`](crate::Channel::is_writable): pending
    /// bytes, and the messages that handles have queued. Both calls are made
    ///
    /// - after each write that leaves more than the high water mark pending: when the callback that
    ///   has written returns, or when the message of a handle or broadcast has been encoded. The
    ///   call with `false` precedes the flush, so a peer that accepts everything at once does not
    ///   prevent the calls;
    /// - after each pause that a handle has seen
    ///   ([`Channel::is_writable`](crate::Channel::is_writable) returned `false`), also if the
    ///   message that caused it was refused.
    ///
    /// So a stream may be continued here, even if another caller wrote its first part. A pause by
    /// queued messages that no handle has seen causes no call if the loop encodes them before the
    /// next callback of the channel.
    ///
    /// # Errors
    /// An error goes to [`error`](Handler::error).
    #[doc(alias = "channelWritabilityChanged")]
    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        Ok(())
    }

    /// Called when the channel has been idle for one of its [`IdleTimeouts`](crate::IdleTimeouts).
    ///
    /// By default closes the channel for [`IdleState::Reader`](crate::IdleState::Reader) and
    /// [`IdleState::All`](crate::IdleState::All), after pending bytes are sent, and ignores
    /// [`IdleState::Writer`](crate::IdleState::Writer). It does not close a channel while
    /// the program has paused reading, and does not take the end of the peer's stream for reader
    /// idleness. Implement this method to send a heartbeat, or to keep a quiet channel open.
    ///
    /// # Errors
    /// An error goes to [`error`](Handler::error); the next event is armed already.
    ///
    /// ```
    /// # use netwheel::{codec::RawBytes, prelude::*, testing::EmbeddedChannel};
    /// # use std::time::Duration;
    /// # struct Quiet;
    /// # impl Handler for Quiet {
    /// #     type Read = bytes::Bytes;
    /// #     type Write = bytes::Bytes;
    /// #     fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// # }
    /// // `Quiet` does not implement `idle`.
    /// let timeouts = IdleTimeouts::new().reader(Duration::from_secs(60));
    /// let mut channel = EmbeddedChannel::new(Pipeline::codec(RawBytes).idle(timeouts).handler(Quiet));
    /// channel.advance(Duration::from_secs(61));
    /// assert!(channel.is_closed());
    /// ```
    #[doc(alias = "userEventTriggered")]
    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        if ctx.ends_when_idle(event) {
            let (id, name) = (ctx.id(), std::any::type_name::<Self>());
            log::debug!("channel {id} ({name}): closing, because it is {event}");
            ctx.close();
        }
        Ok(())
    }

    /// Called once, when the peer has ended its stream and all of its messages have been delivered.
    ///
    /// Only called with [`half_close`](crate::channel::ChannelOptions::half_close). Otherwise the
    /// channel closes at this point. By default closes the channel. A handler that has more to
    /// write can leave it open until it calls [`close`](Context::close) or
    /// [`shutdown_write`](Context::shutdown_write).
    ///
    /// # Errors
    /// An error goes to [`error`](Handler::error).
    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.close();
        Ok(())
    }

    /// Called when the event loop shuts down, or when the connection has reached its
    /// [maximum age](crate::channel::MaxConnectionAge), so that the handler can write a last
    /// message. [`Context::shutdown_cause`] returns the cause.
    ///
    /// By default closes the channel after the pending bytes have been sent. A channel that is left
    /// open is closed when the timeout of the shutdown, or the grace time of the age, ends. An HTTP
    /// server is an exception. At its maximum age, it stays open by default until it has sent its
    /// next response. In a shutdown, it first sends a body whose end is that of the connection, as
    /// for an HTTP/1.0 client.
    ///
    /// Called at most once for each cause. A pipeline that [takes over](Context::replace_pipeline)
    /// after that is notified too. In a shutdown, that is at the channel's time in the
    /// [`drain_window`](crate::shutdown::ShutdownOptions::drain_window). Scheduled tasks of the
    /// loop have been cancelled by then. Not called if the channel is closing already.
    ///
    /// # Errors
    /// An error goes to [`error`](Handler::error).
    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if !ctx.ends_later() {
            ctx.close();
        }
        Ok(())
    }

    /// Called when a callback of this handler, a decoder or the connection has failed.
    ///
    /// Messages written here are flushed before the channel closes, for every result, and
    /// after a panic too. Use this to send the reason to the peer. They are not sent if the
    /// connection is broken, a filter has failed, the time limit for writes was reached, or
    /// [`Overflow::Close`](crate::channel::Overflow::Close) or a heartbeat closes the channel.
    ///
    /// By default logs the error and closes the channel. The level is `info` for errors of the
    /// peer: protocol errors and time limits that it has exceeded. It is `debug` for broken
    /// connections and `warn` for all others. Each loop logs at most 10 lines of each kind in 10
    /// seconds, and then the number of suppressed lines; see [`Context::may_log`]. A panic (as
    /// `error`) and a full buffer that closes the channel (as `info`; see
    /// [`Overflow::Close`](crate::channel::Overflow::Close)) were logged before this call and are
    /// not logged again.
    ///
    /// An implementation that returns `Ok` without closing keeps the channel open after errors of
    /// callbacks and of the codec. It closes in any case after a panic, a time limit, an error of a
    /// filter, a limit that was exceeded, or if the connection is broken.
    ///
    /// # Errors
    /// An error is logged with the same levels, and the channel is closed after its pending
    /// messages. So an implementation that has nothing to add may return the error that it was
    /// called with.
    #[doc(alias = "exceptionCaught")]
    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let (id, name) = (ctx.id(), std::any::type_name::<Self>());
        if !ctx.services.is_logged(id.key, &error) {
            let (topic, level) = error.log_topic();
            log_throttled!(ctx.services, topic, level, "channel {id} ({name}): {error:#}");
        }
        ctx.close();
        Ok(())
    }

    /// Called once, when the channel is closed. Writes fail from now on.
    ///
    /// Called if and only if `active` was called, unless the pipeline has been
    /// [replaced](Context::replace_pipeline) since.
    ///
    /// # Errors
    /// An error is logged.
    #[doc(alias = "channelInactive")]
    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        Ok(())
    }
}
