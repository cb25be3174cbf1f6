//! The handler trait: the program's own logic.

mod context;

pub use context::{AnyHandler, ChannelContext, Context};
pub(super) use context::{RemoteTask, run_as, run_as_any};

use crate::{
    Error, Result,
    channel::{IdleEvent, IdleState},
    log_throttle::{BROKEN, CHANNEL_ERRORS, PEER_ERRORS, log_throttled},
};
use log::Level;

/// What a program does with the messages of one channel; the last link of every [`Pipeline`](crate::Pipeline).
///
/// One instance serves one channel. It is made, called and dropped on the channel's loop, so it needs neither
/// `Send` nor locks; for the same reason no callback may block.
///
/// The order of calls is: `active`, then any of `read`, `read_complete`, `writability_changed`, `idle`, `error`
/// and scheduled tasks, then `inactive`, once, as the last one. No callback is ever called from within another. A handler
/// whose pipeline is [replaced](crate::Context::replace_pipeline) is dropped instead, without `inactive`.
/// An `Err` that a callback returns goes to [`error`](Handler::error). A panic is caught at the channel's
/// boundary and goes there as well, and the channel is closed whatever `error` does; other channels do not
/// notice.
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
pub trait Handler: Sized + 'static {
    /// What the link before it decodes.
    type Read: 'static;
    /// What it writes.
    type Write: 'static;

    /// The channel is connected.
    ///
    /// # Errors
    /// Go to [`error`](Handler::error).
    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let _ = ctx;
        Ok(())
    }

    /// A message has come.
    ///
    /// # Errors
    /// Go to [`error`](Handler::error); if that leaves the channel open, the next message is read.
    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Self::Read) -> Result;

    /// The bytes at hand are read and decoded; also called when a read brought no whole message, or nothing.
    ///
    /// # Errors
    /// Go to [`error`](Handler::error).
    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let _ = ctx;
        Ok(())
    }

    /// The pending bytes went above the high water mark (`false`) or came below the low one (`true`).
    ///
    /// # Errors
    /// Go to [`error`](Handler::error).
    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        let _ = (ctx, writable);
        Ok(())
    }

    /// The channel was quiet for as long as its [`IdleTimeouts`](crate::IdleTimeouts) say.
    ///
    /// By default closes the channel for [`IdleState::Reader`] and [`IdleState::All`], after pending
    /// bytes are sent, and ignores [`IdleState::Writer`]. It does not close a channel while the
    /// program has paused reading, and does not take the end of the peer's stream for reader
    /// idleness. Implement this method to send a heartbeat, or to keep a quiet channel open.
    ///
    /// # Errors
    /// Go to [`error`](Handler::error); the next event is armed already.
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
    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        let closes = match event.state {
            IdleState::Reader => ctx.expects_input(),
            IdleState::All => ctx.expects_input() || ctx.has_all_input(),
            IdleState::Writer => false,
        };
        if closes {
            let (id, name) = (ctx.id(), std::any::type_name::<Self>());
            log::debug!("channel {id} ({name}): closing, because it is {event}");
            ctx.close();
        }
        Ok(())
    }

    /// The peer has ended its stream, and everything that it sent has been read. Called once, and only if the channel's
    /// [`half_close`](crate::ChannelOptions::half_close) is on; otherwise the channel closes at this point.
    ///
    /// Closes the channel by default. A handler that still has something to say does not: the channel goes on until
    /// [`close`](crate::Context::close) or [`shutdown_write`](crate::Context::shutdown_write).
    ///
    /// # Errors
    /// Go to [`error`](Handler::error).
    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.close();
        Ok(())
    }

    /// The event loop is shutting down: the time to say goodbye. The default closes the channel after what is
    /// pending is sent. A channel left open here is closed when the shutdown's timeout ends.
    ///
    /// Called once at most, when the channel's time in the shutdown's [`drain_window`](crate::ShutdownOptions::drain_window) has
    /// come; its scheduled tasks have been cancelled by then. Not called if the channel is closing already.
    ///
    /// # Errors
    /// Go to [`error`](Handler::error).
    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.close();
        Ok(())
    }

    /// Something failed: a callback of this handler, a decoder, or the connection itself.
    ///
    /// What it writes here is sent before a channel closes that is not broken: a word to the peer, why.
    ///
    /// The default logs the error and closes the channel. The level is `info` for protocol errors, `debug` for broken
    /// connections and `warn` for all others. Each loop logs at most 10 lines of each kind in 10 seconds, and then the
    /// number of suppressed lines; see [`Context::may_log`](crate::Context::may_log). One that returns `Ok` without closing keeps the channel open,
    /// unless the connection is broken or a callback panicked.
    ///
    /// # Errors
    /// An error returned from here is logged, and the channel is closed.
    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let (id, name) = (ctx.id(), std::any::type_name::<Self>());
        let (topic, level) = match &error {
            Error::Io { .. } | Error::Closed => (BROKEN, Level::Debug),
            Error::Peer(_) => (PEER_ERRORS, Level::Info),
            _ => (CHANNEL_ERRORS, Level::Warn),
        };
        log_throttled!(ctx.services, topic, level, "channel {id} ({name}): {error:#}");
        ctx.close();
        Ok(())
    }

    /// The channel is closed; writes fail from now on. Called if and only if `active` was, unless the pipeline was
    /// [replaced](crate::Context::replace_pipeline) since.
    ///
    /// # Errors
    /// Are logged.
    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let _ = ctx;
        Ok(())
    }
}
