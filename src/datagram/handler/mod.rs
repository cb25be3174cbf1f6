//! The handler trait of datagram channels.

mod context;

pub(crate) use context::DatagramInbox;
pub use context::{AnyDatagramHandler, DatagramContext};
pub(super) use context::{DatagramCommand, RemoteDatagramTask};

use crate::{
    error::{Error, Result},
    log_throttle::{BROKEN, log_throttled},
};
use bytes::Bytes;
use log::Level;
use std::{any::Any, net::SocketAddr, ops::ControlFlow};

/// The handler of the events of one datagram channel. It stays on the channel's loop from creation
/// to drop, so it need be neither `Send` nor `Sync`.
///
/// `active` is called first. Then `read`, `writability_changed`, `error` and scheduled tasks are
/// called in any order. `shutdown` is called when the loop shuts down. `inactive` is the last call.
/// Calls are never nested.
///
/// If a call returns an error, the error is passed to [`error`](DatagramHandler::error), and the
/// channel continues. A panic closes the channel.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{
///     DatagramBootstrap,
///     EventLoopGroup,
///     Result,
///     datagram::{DatagramContext, DatagramHandler},
/// };
/// use std::net::SocketAddr;
///
/// struct Echo;
///
/// impl DatagramHandler for Echo {
///     fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
///         ctx.write_to(datagram, from)?;
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
#[allow(unused_variables, reason = "default methods ignore their arguments")]
pub trait DatagramHandler: Sized + 'static {
    /// Called first, when the channel is open.
    fn active(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
        Ok(())
    }

    /// Called with each received datagram, which is complete and may be empty.
    ///
    /// `datagram` is a slice of the loop's read buffer. Keeping it keeps 64 KiB allocated, so copy
    /// data that is needed for longer.
    fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result;

    /// Called with `false` when the kernel accepts no more datagrams for now, so that further ones
    /// are queued. Called with `true` when all queued datagrams have been sent.
    fn writability_changed(&mut self, ctx: &mut DatagramContext<'_, Self>, writable: bool) -> Result {
        Ok(())
    }

    /// Called when an operation has failed: a call of this handler, a queued datagram, or one sent
    /// through a handle. Also called when the network reports that an earlier datagram could not be
    /// delivered. On a connected channel, `ConnectionRefused` means that the port of the peer is
    /// closed, and `HostUnreachable` that a firewall rejects the datagrams, for example.
    ///
    /// The channel stays open, unless this method closes it or fails itself. The default logs the
    /// error at level `debug`, with the rate limit of
    /// [`may_log`](DatagramContext::may_log). Peers can cause many such errors.
    fn error(&mut self, ctx: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        let id = ctx.id();
        if !ctx.services.is_logged(id.key, &error) {
            log_throttled!(ctx.services, BROKEN, Level::Debug, "datagram channel {id}: {error:#}");
        }
        Ok(())
    }

    /// Called when the loop shuts down. The default closes the channel. A channel that stays open
    /// is closed at the deadline of the shutdown.
    fn shutdown(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
        ctx.close();
        Ok(())
    }

    /// Called last, when the channel is closed.
    fn inactive(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
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
    /// A task from another thread.
    Run(RemoteDatagramTask),
}

/// A handler with its type erased.
pub(crate) trait DatagramLinks {
    fn call(&mut self, ctx: DatagramContext<'_, AnyDatagramHandler>, event: DatagramEvent) -> Result;

    /// Runs a periodic task of the handler. Returns whether it goes on.
    fn run_periodic(
        &mut self,
        ctx: DatagramContext<'_, AnyDatagramHandler>,
        task: &mut dyn Any,
    ) -> Result<ControlFlow<()>>;

    /// The name of the handler's type, for reports.
    fn handler_type(&self) -> fn() -> &'static str;
}

/// A handler of a known type.
pub(crate) struct TypedHandler<H>(pub(crate) H);

impl<H: DatagramHandler> DatagramLinks for TypedHandler<H> {
    fn call(&mut self, ctx: DatagramContext<'_, AnyDatagramHandler>, event: DatagramEvent) -> Result {
        let handler = &mut self.0;
        let ctx = &mut ctx.of::<H>();
        match event {
            DatagramEvent::Active => handler.active(ctx),
            DatagramEvent::Read(datagram, from) => handler.read(ctx, datagram, from),
            DatagramEvent::Writability(writable) => handler.writability_changed(ctx, writable),
            DatagramEvent::Error(error) => handler.error(ctx, error),
            DatagramEvent::Shutdown => handler.shutdown(ctx),
            DatagramEvent::Inactive => handler.inactive(ctx),
            DatagramEvent::Task(task) => context::run(task, handler, ctx),
            DatagramEvent::Run(task) => task(&mut ctx.erase()),
        }
    }

    fn run_periodic(
        &mut self,
        ctx: DatagramContext<'_, AnyDatagramHandler>,
        task: &mut dyn Any,
    ) -> Result<ControlFlow<()>> {
        context::run_periodic(task, &mut self.0, &mut ctx.of::<H>())
    }

    fn handler_type(&self) -> fn() -> &'static str {
        std::any::type_name::<H>
    }
}
