//! A client that reconnects: its settings and its handle. `reconnect_state` is the state machine.
//!
//! The client is in exactly one phase, with one operation in progress: a timer, an attempt or a
//! channel. The operation owns the client; the handle only sends requests. An operation can fail,
//! be cancelled, or be dropped by a loop that shuts down. In each case it reports its end once, on
//! the client's loop, and the next phase starts or the client ends. So no operation can be
//! forgotten. The loop's queue always accepts mail of the client, and its timer does not count
//! against the limit of scheduled tasks. A client has at most one of each.
//!
//! Invariant: invalid settings are refused before anything starts. Any thread may start a client or
//! use the handle. The hook is called on the client's loop.

mod backoff;
mod handle;
mod reconnect_state;

pub use backoff::Backoff;
#[cfg(feature = "http")]
pub(super) use backoff::Retries;
pub use handle::ReconnectingChannel;

use super::{
    client::{Call, ClientBootstrap},
    dial::{Dialer, Target},
};
use crate::{
    channel::{Channel, ChannelConfig, IntoPipeline, Peer},
    error::{Error, Resource, Result},
    event_loop::Connecting,
    transport::{Address, ToAddress},
};
use reconnect_state::{Attempting, ReconnectCalls, ReconnectState};
use std::{fmt, ops::ControlFlow, sync::Arc, time::Duration};

/// An event of a reconnecting client, passed to the hook of [`ReconnectBuilder::on_event`].
#[non_exhaustive]
pub enum ReconnectEvent<'a, M> {
    /// An attempt starts.
    Connecting {
        /// The number of the attempt since the last stable connection, from 1.
        attempt: u32,
        /// The address that is tried first, as it is known before the name is looked up again.
        address: &'a Address,
    },
    /// An attempt has succeeded. The handler's `active` is called next.
    Connected {
        /// The number of the attempt.
        attempt: u32,
        /// The new channel.
        channel: &'a Channel<M>,
    },
    /// An attempt has failed.
    Failed {
        /// The number of the attempt.
        attempt: u32,
        /// The error of the attempt.
        error: &'a Error,
        /// The delay before the next attempt, with the hint of the server; `None` if the client
        /// gives up.
        next: Option<Duration>,
    },
    /// The connection was closed, by either side.
    Lost {
        /// How long the connection lasted.
        held: Duration,
        /// The delay before the next attempt, with the hint of the server; `None` if the client
        /// gives up.
        next: Option<Duration>,
    },
}

// Not derived, because that would require `M: Debug`.
impl<M> fmt::Debug for ReconnectEvent<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReconnectEvent::Connecting { attempt, address } => {
                f.debug_struct("Connecting").field("attempt", attempt).field("address", address).finish()
            }
            ReconnectEvent::Connected { attempt, channel } => {
                f.debug_struct("Connected").field("attempt", attempt).field("channel", channel).finish()
            }
            ReconnectEvent::Failed { attempt, error, next } => {
                let mut debug = f.debug_struct("Failed");
                debug.field("attempt", attempt).field("error", error).field("next", next).finish()
            }
            ReconnectEvent::Lost { held, next } => {
                f.debug_struct("Lost").field("held", held).field("next", next).finish()
            }
        }
    }
}

type Hook<M> = Box<dyn Fn(ReconnectEvent<'_, M>) -> ControlFlow<()> + Send + Sync>;

type RetryIf = Box<dyn Fn(&Error) -> bool + Send + Sync>;

/// A builder for a reconnecting client, created by [`ClientBootstrap::reconnect`].
#[must_use]
pub struct ReconnectBuilder<F, M> {
    bootstrap: ClientBootstrap<Arc<F>>,
    backoff: Backoff,
    hook: Option<Hook<M>>,
    retry_if: Option<RetryIf>,
}

impl<F, P> ClientBootstrap<Arc<F>>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Returns a builder for a client that reconnects when its connection is lost or an attempt
    /// fails, after a delay that `backoff` determines.
    ///
    /// ```
    /// # use netwheel::{reconnect::{Backoff, ReconnectEvent}, codec::RawBytes, prelude::*};
    /// # use std::ops::ControlFlow;
    /// # struct Quiet;
    /// # impl Handler for Quiet {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// # }
    /// # fn main() -> Result {
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let client = ClientBootstrap::new(&group)
    ///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Quiet))
    ///     .reconnect(Backoff::new())
    ///     .on_event(|event| {
    ///         if let ReconnectEvent::Failed { attempt, error, next: Some(delay) } = event {
    ///             println!("attempt {attempt}: {error}; again in {delay:?}");
    ///         }
    ///         ControlFlow::Continue(())
    ///     })
    ///     .connect("127.0.0.1:9")?;
    /// if let Some(channel) = client.channel() {
    ///     channel.write("hello".into())?;
    /// }
    /// client.close();
    /// client.closed().wait()
    /// # }
    /// ```
    pub fn reconnect(&self, backoff: Backoff) -> ReconnectBuilder<F, P::Message> {
        ReconnectBuilder { bootstrap: self.clone(), backoff, hook: None, retry_if: None }
    }
}

impl<F, P> ReconnectBuilder<F, P::Message>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Sets a function that is called on the client's loop for each attempt, success, failure and
    /// loss. It can return [`ControlFlow::Break`] to stop the client. It must not block. A panic in
    /// it is logged, and the client continues.
    pub fn on_event(
        mut self,
        hook: impl Fn(ReconnectEvent<'_, P::Message>) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Sets a function that returns whether another attempt may succeed after this error of an
    /// attempt. If it returns `false`, the client gives up with that error. By default every error
    /// is retried. The function is called on the client's loop. A panic in it is logged, and the
    /// client continues.
    ///
    /// ```
    /// # use netwheel::{codec::RawBytes, reconnect::Backoff, prelude::*};
    /// # use std::io::ErrorKind;
    /// # fn main() -> Result {
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// # let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    /// let client = ClientBootstrap::new(&group)
    ///     .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_, _: bytes::Bytes| Ok(())))
    ///     .reconnect(Backoff::new())
    ///     .retry_if(|error| error.io_kind() != Some(ErrorKind::ConnectionRefused))
    ///     .connect(address)?;
    /// assert!(client.closed().wait().is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_if(mut self, retryable: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.retry_if = Some(Box::new(retryable));
        self
    }

    /// Starts the client. The first attempt is made without a delay, on the group's next loop,
    /// which serves all later connections too.
    ///
    /// Resolves a host name, which may block. Each later attempt looks it up again, on a thread
    /// of the group that does nothing else, and uses the known addresses if that fails. Several
    /// addresses are tried as by [`ClientBootstrap::connect`], beginning with the last connected
    /// address. An address whose connection was lost before it was stable
    /// ([`reset_after`](Backoff::reset_after)) is tried last.
    ///
    /// # Errors
    /// - [`Error::Setting`] if a setting is out of range.
    /// - [`Error::Io`] if the host name has no address.
    /// - [`Error::Full`] if the loop's queue is full.
    /// - [`Error::ShutDown`] if the loop is shut down.
    ///
    /// An unreachable server is not an error: the client keeps trying.
    pub fn connect(self, address: impl ToAddress) -> Result<ReconnectingChannel<P::Message>> {
        self.backoff.check()?;
        let config = self.bootstrap.check(address.host())?;
        self.start(config, Target::resolve(address)?)
    }

    /// Like [`connect`](ReconnectBuilder::connect), but looks the name up on another thread before
    /// the first attempt too. So it does not block, and a name without an address is not an error:
    /// the client keeps trying.
    #[cfg(feature = "redis")]
    pub(crate) fn connect_later(self, host: Arc<str>, port: u16) -> Result<ReconnectingChannel<P::Message>> {
        self.backoff.check()?;
        let name = host.parse::<std::net::IpAddr>().is_err().then(|| host.clone());
        let config = self.bootstrap.check(name)?;
        self.start(config, Target::later(host, port))
    }

    fn start(self, config: Arc<ChannelConfig>, target: Target) -> Result<ReconnectingChannel<P::Message>> {
        let ReconnectBuilder { bootstrap, backoff, hook, retry_if } = self;
        let (group, event_loop) = (bootstrap.group.clone(), bootstrap.group.next().clone());
        let caller = event_loop.clone();
        let call = move |addresses, attempt, done| {
            let call = Call { config: config.clone(), attempt, done };
            let load = &caller.shared.load;
            let Some(assignment) = load.assign(config.weight) else {
                let limit = load.limit();
                return call.done.failed(Error::Full { resource: Resource::Connections, limit });
            };
            // The loop admitted the first attempt, so a queue that is full now must not stop the
            // client.
            bootstrap.call(&caller, assignment, addresses, call, Connecting::submit_always);
        };
        // Attempts are rare, so each one but the first looks the name up.
        let dialer = Dialer::new(&group, target, Duration::ZERO, Box::new(call));
        let calls = ReconnectCalls { dialer, hook, retry_if };
        let reconnect_state = Arc::new(ReconnectState::new(event_loop, backoff, calls));
        let pending = Attempting::new(reconnect_state.clone());
        reconnect_state.event_loop.execute(move || pending.take(ReconnectState::try_to_connect))?;
        Ok(ReconnectingChannel { reconnect_state })
    }
}

impl<F: fmt::Debug, M> fmt::Debug for ReconnectBuilder<F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconnectBuilder")
            .field("bootstrap", &self.bootstrap)
            .field("backoff", &self.backoff)
            .finish()
    }
}
