//! The handler trait of datagram channels.

use super::{
    context::{DatagramContext, DatagramTask},
    scope::{DatagramScope, ScopeTask},
};
use crate::{
    Error, Result,
    log_throttle::{BROKEN, log_throttled},
};
use bytes::Bytes;
use log::Level;
use std::{any::Any, net::SocketAddr};

/// What is done with the datagrams of one channel. It lives and dies on the channel's loop: it need be neither `Send`
/// nor `Sync`.
///
/// Calls come in this order: `active`; then `read`, `writability_changed`, `error`, scheduled tasks, at last `shutdown`;
/// then `inactive`. None is made from within another.
///
/// An error that a call returns is told to [`error`](DatagramHandler::error), and the channel goes on; a panic closes it.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{DatagramBootstrap, DatagramContext, DatagramHandler, EventLoopGroup, Result};
/// use std::net::SocketAddr;
///
/// struct Echo;
///
/// impl DatagramHandler for Echo {
///     fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
///         ctx.send_to(datagram, from)?;
///         Ok(())
///     }
/// }
///
/// fn main() -> Result {
///     let group = EventLoopGroup::builder().threads(1).build()?;
///     let channel = DatagramBootstrap::new(&group).handler(|| Echo).bind("127.0.0.1:0")?;
///     println!("listening on {}", channel.local_address());
///     channel.close();
///     channel.closed().wait()
/// }
/// ```
pub trait DatagramHandler: Sized + 'static {
    /// The channel is open: the first call.
    fn active(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
        let _ = ctx;
        Ok(())
    }

    /// A datagram has come, whole; it may be empty. It is cut from the loop's read buffer: to keep it for long keeps
    /// 64 KiB, so copy what is to be kept.
    fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result;

    /// The kernel takes no more for now, and what is sent from here on waits; or all that waited is with the kernel.
    fn writability_changed(&mut self, ctx: &mut DatagramContext<'_, Self>, writable: bool) -> Result {
        let _ = (ctx, writable);
        Ok(())
    }

    /// Something failed: a call of this handler, a datagram that waited, or one sent through a handle. Or the network
    /// reports that nobody listens where an earlier datagram went (on a connected channel, `ConnectionRefused`). The
    /// channel stays open, unless this closes it or fails itself. Logs it by default, at level
    /// `debug`, with the rate limit of [`may_log`](DatagramScope::may_log): peers can cause many of
    /// these.
    fn error(&mut self, ctx: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        let id = ctx.id();
        log_throttled!(ctx.services, BROKEN, Level::Debug, "datagram channel {id}: {error:#}");
        Ok(())
    }

    /// The loop is shutting down; closes by default. A channel that does not close is closed when the shutdown's time is
    /// over.
    fn shutdown(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
        ctx.close();
        Ok(())
    }

    /// The channel is closed: the last call.
    fn inactive(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
        let _ = ctx;
        Ok(())
    }
}

/// One call of a handler.
pub(crate) enum DatagramEvent {
    Active,
    Read(Bytes, SocketAddr),
    Writability(bool),
    Error(Error),
    Shutdown,
    Inactive,
    /// A `DatagramTask` of the handler.
    Task(Box<dyn Any>),
    /// From another thread.
    Run(ScopeTask),
}

/// A handler of whatever type.
pub(crate) trait DatagramLinks {
    fn call(&mut self, scope: DatagramScope<'_>, event: DatagramEvent) -> Result;

    /// The name of the handler's type, for reports.
    fn handler_type(&self) -> fn() -> &'static str;
}

/// A handler of a known type.
pub(crate) struct TypedHandler<H>(pub(crate) H);

impl<H: DatagramHandler> DatagramLinks for TypedHandler<H> {
    fn call(&mut self, scope: DatagramScope<'_>, event: DatagramEvent) -> Result {
        let handler = &mut self.0;
        let mut ctx = DatagramContext::new(scope);
        let ctx = &mut ctx;
        match event {
            DatagramEvent::Active => handler.active(ctx),
            DatagramEvent::Read(datagram, from) => handler.read(ctx, datagram, from),
            DatagramEvent::Writability(writable) => handler.writability_changed(ctx, writable),
            DatagramEvent::Error(error) => handler.error(ctx, error),
            DatagramEvent::Shutdown => handler.shutdown(ctx),
            DatagramEvent::Inactive => handler.inactive(ctx),
            DatagramEvent::Task(task) => match task.downcast::<DatagramTask<H>>() {
                Ok(task) => task.run(handler, ctx),
                Err(_) => unreachable!("tasks are scheduled by the handler that they run with"),
            },
            DatagramEvent::Run(task) => task(ctx),
        }
    }

    fn handler_type(&self) -> fn() -> &'static str {
        std::any::type_name::<H>
    }
}
