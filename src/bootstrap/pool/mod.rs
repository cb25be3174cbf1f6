//! A pool of channels: its settings and its handles.
//!
//! `pool_state` records where each channel is and which acquires wait. `service` serves acquires
//! and releases. The lock covers `PoolState` only. It is not held while hooks run, channels close
//! and completions complete. During that time the channel is in the place `Counter`: it still
//! counts, although it may close. The thread that releases a channel serves the waiters. If another
//! thread is already serving them, that thread takes over the released channel. An acquired channel
//! returns itself when it is dropped, also from a completion that was dropped.
//!
//! Invariant: invalid settings are refused when the pool is built. Any thread may call everything
//! here. Hooks are called on the thread that hands out the channel: the thread that acquires, the
//! thread that releases, or a loop.

#[cfg(feature = "http")]
mod agent;
#[cfg(feature = "http")]
mod call;
mod pool_state;
mod pooled;
#[cfg(feature = "http")]
mod request;
#[cfg(feature = "http")]
mod request_settings;
mod service;

#[cfg(feature = "http")]
pub use agent::{HttpAgent, HttpAgentBuilder};
pub use pooled::PooledChannel;
#[cfg(feature = "http")]
pub use request::PoolRequest;

use crate::{
    bootstrap::{
        client::{ClientBootstrap, connector},
        dial::{Dialer, Target},
    },
    channel::{Channel, IntoPipeline, Peer},
    error::{Error, Result},
    sync::Completion,
    transport::ToAddress,
};
use service::{PoolHooks, PoolService};
use std::{fmt, sync::Arc, time::Duration};

/// The order in which the free channels of a pool are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PoolOrder {
    /// The channel that was released last (the default). The other channels stay idle, and a server
    /// may close them.
    #[default]
    Lifo,
    /// The channel that has been free for the longest time. All channels are kept in use.
    Fifo,
}

/// The behavior of an acquire that has waited for the pool's `acquire_timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AcquireTimeout {
    /// The acquire fails with [`Error::TimedOut`] (the default).
    #[default]
    Fail,
    /// The acquire opens a new channel beyond the size of the pool. The pool shrinks again as
    /// channels are released.
    Open,
}

/// How long the addresses of a name are used by default.
const LOOKUP_TTL: Duration = Duration::from_secs(30);

/// A builder for a [`ChannelPool`], created by [`ClientBootstrap::pool`].
///
/// | setting | default | range |
/// |---|---|---|
/// | `size` | 8 channels | 1 or more |
/// | `max_waiters` | 1024 | 0 or more |
/// | `acquire_timeout` | 10 s | 0 or more |
/// | `on_timeout` | [`AcquireTimeout::Fail`] | |
/// | `order` | [`PoolOrder::Lifo`] | |
/// | `lookup_ttl` | 30 s | 0 or more |
/// | `health_check` | the channel is open | |
/// | `on_acquire` | no hook | |
#[must_use]
pub struct ChannelPoolBuilder<F, M> {
    bootstrap: ClientBootstrap<Arc<F>>,
    size: usize,
    max_waiters: usize,
    timeout: Duration,
    on_timeout: AcquireTimeout,
    order: PoolOrder,
    lookup_ttl: Duration,
    hooks: PoolHooks<M>,
}

impl<F, P> ClientBootstrap<Arc<F>>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Returns a builder for a pool of channels to one address.
    ///
    /// ```
    /// # use netwheel::{codec::RawBytes, prelude::*};
    /// # struct Quiet;
    /// # impl Handler for Quiet {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// # }
    /// # fn main() -> Result {
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// # let server = ServerBootstrap::new(&group)
    /// #     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Quiet)).bind("127.0.0.1:0")?;
    /// # let address = server.local_address();
    /// let pool = ClientBootstrap::new(&group)
    ///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Quiet))
    ///     .pool()
    ///     .size(4)
    ///     .build(address)?;
    /// let channel = pool.acquire().wait()?;
    /// channel.write("hello".into())?;
    /// drop(channel); // it goes back
    /// assert_eq!((pool.acquired(), pool.free()), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn pool(&self) -> ChannelPoolBuilder<F, P::Message> {
        ChannelPoolBuilder {
            bootstrap: self.clone(),
            size: 8,
            max_waiters: 1024,
            timeout: Duration::from_secs(10),
            on_timeout: AcquireTimeout::Fail,
            order: PoolOrder::Lifo,
            lookup_ttl: LOOKUP_TTL,
            hooks: PoolHooks::default(),
        }
    }
}

impl<F, P> ChannelPoolBuilder<F, P::Message>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Sets the limit of channels, free and acquired. The default is 8.
    pub fn size(mut self, channels: usize) -> Self {
        self.size = channels;
        self
    }

    /// Sets the limit of acquires that may wait for a channel. Further acquires fail with
    /// [`Error::Full`]. The default is 1024.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.max_waiters = waiters;
        self
    }

    /// Sets how long an acquire waits for a channel to be released. The default is 10 s; with zero
    /// an acquire does not wait. The time to open a new channel is limited by the bootstrap's
    /// [`connect_timeout`](ClientBootstrap::connect_timeout).
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the behavior of an acquire that has waited for `acquire_timeout`.
    pub fn on_timeout(mut self, what: AcquireTimeout) -> Self {
        self.on_timeout = what;
        self
    }

    /// Sets the order in which free channels are handed out.
    pub fn order(mut self, order: PoolOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets how long the addresses of a host name are used. The default is 30 s. The name is also
    /// looked up again when none of its addresses could be connected to. Lookups run on threads of
    /// the group that do nothing else. If one fails, the known addresses are used for this time
    /// again, but not for longer than 30 s.
    pub fn lookup_ttl(mut self, time: Duration) -> Self {
        self.lookup_ttl = time;
        self
    }

    /// Sets a function that returns whether a used channel may be handed out again. If it returns
    /// `false` or panics, the channel is closed and another one is used. It must not block. It is
    /// not called for closed channels.
    pub fn health_check(
        mut self,
        check: impl Fn(&Channel<P::Message>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.hooks.health_check = Some(Box::new(check));
        self
    }

    /// Sets a function that is called with each channel before it is handed out. An error or a
    /// panic fails the acquire with that error, closes the channel and frees its place.
    pub fn on_acquire(
        mut self,
        hook: impl Fn(&Channel<P::Message>) -> Result + Send + Sync + 'static,
    ) -> Self {
        self.hooks.on_acquire = Some(Box::new(hook));
        self
    }

    /// Builds the pool. Does not open a connection yet.
    ///
    /// Resolves a host name, which may block. Later connections look it up again after
    /// [`lookup_ttl`](ChannelPoolBuilder::lookup_ttl). Several addresses are tried as by
    /// [`ClientBootstrap::connect`], beginning with the last connected address.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting is out of range, or [`Error::Io`] if the host name has no
    /// address.
    pub fn build(self, address: impl ToAddress) -> Result<ChannelPool<P::Message>> {
        if self.size == 0 {
            return Err(Error::setting("size", 0, "1 or more"));
        }
        let config = self.bootstrap.check(address.host())?;
        let target = Target::resolve(address)?;
        let group = self.bootstrap.group.clone();
        let dialer = Dialer::new(&group, target, self.lookup_ttl, connector(self.bootstrap, config));
        let call = move |attempt, done| dialer.dial(attempt, done);
        let settings = service::PoolSettings {
            size: self.size,
            max_waiters: self.max_waiters,
            timeout: self.timeout,
            on_timeout: self.on_timeout,
            order: self.order,
        };
        Ok(ChannelPool { service: PoolService::new(group, settings, Box::new(call), self.hooks) })
    }
}

impl<F: fmt::Debug, M> fmt::Debug for ChannelPoolBuilder<F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ChannelPoolBuilder");
        debug.field("bootstrap", &self.bootstrap).field("size", &self.size).finish_non_exhaustive()
    }
}

/// A pool of reusable channels to one address. Clones are handles to the same pool and can be sent
/// to other threads.
///
/// A channel that is closed by either side leaves the pool, and a new one may take its place. When
/// the last handle and the last [`PooledChannel`] are dropped, the free channels are closed, and
/// acquires that still wait fail with [`Error::Closed`].
pub struct ChannelPool<M: 'static> {
    service: Arc<PoolService<M>>,
}

impl<M: 'static> ChannelPool<M> {
    /// Acquires a channel for exclusive use: a free one, a new one if the pool has room, or else
    /// the next one that is released.
    ///
    /// Acquires are served in FIFO order. Dropping the completion, or [`Completion::cancel`],
    /// leaves the queue and returns a channel that was acquired already. A connect that was started
    /// for a cancelled acquire continues, and its channel becomes free. [`Completion::detach`]
    /// stays in the queue, and returns the acquired channel immediately.
    ///
    /// # Errors
    /// - [`Error::TimedOut`] after the pool's `acquire_timeout`.
    /// - [`Error::Full`] if too many acquires wait.
    /// - [`Error::Closed`] if the pool is closed.
    /// - [`Error::ShutDown`] if the loops are shut down.
    /// - The error of `on_acquire`, or an error of [`ClientBootstrap::connect`].
    pub fn acquire(&self) -> Completion<PooledChannel<M>> {
        self.service.acquire()
    }

    /// Returns a channel to the pool. Dropping the channel does the same.
    ///
    /// # Errors
    /// [`Error::WrongOwner`] if the channel belongs to another pool. It is then closed and leaves
    /// that pool. [`Error::Closed`] if the pool is closed; the channel is closed too, after its
    /// current exchange.
    pub fn release(&self, channel: PooledChannel<M>) -> Result {
        channel.release_to(&self.service)
    }

    /// Closes the pool. Waiting acquires fail, attempts to connect are cancelled, free channels are
    /// closed, and acquired channels are closed when they are released.
    pub fn close(&self) {
        self.service.close();
    }

    /// Returns whether the pool is closed.
    pub fn is_closed(&self) -> bool {
        self.service.pool_state.lock().is_closed()
    }

    /// Returns the number of acquired channels, including channels that are being opened.
    pub fn acquired(&self) -> usize {
        self.service.pool_state.lock().acquired()
    }

    /// Returns the number of free channels.
    pub fn free(&self) -> usize {
        self.service.pool_state.lock().free()
    }

    /// Returns the number of acquires that wait for a channel to be released.
    pub fn waiters(&self) -> usize {
        self.service.pool_state.lock().waiters()
    }
}

impl<M: 'static> Clone for ChannelPool<M> {
    fn clone(&self) -> Self {
        ChannelPool { service: self.service.clone() }
    }
}

impl<M: 'static> fmt::Debug for ChannelPool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool_state = self.service.pool_state.lock();
        let mut debug = f.debug_struct("ChannelPool");
        debug.field("acquired", &pool_state.acquired()).field("free", &pool_state.free());
        debug.field("waiters", &pool_state.waiters()).field("closed", &pool_state.is_closed()).finish()
    }
}
