//! A pool of channels: its settings and its handles.
//!
//! `pool_state` records where each channel is and who waits. `service` serves acquires and
//! releases. The lock covers `PoolState` only. Hooks run, channels close and completions complete
//! without it. Meanwhile the channel is in the place `Counter`: it still counts, although it may
//! close. The thread that releases a channel serves the waiters. If another thread is already
//! serving them, that thread takes over what was released. An acquired channel returns itself when
//! it is dropped, also from a completion that was dropped.
//!
//! Invariant: settings are refused when the pool is built. Any thread may call everything here.
//! Hooks are called on the thread that hands out the channel: one that acquires, one that releases,
//! or a loop.

mod pool_state;
mod pooled;
mod service;

pub use pooled::PooledChannel;

use super::client::{Call, ClientBootstrap};
use crate::{
    Channel, Completion, Error, Result,
    event_loop::{LoopShared, Peer},
    pipeline::IntoPipeline,
    transport::ToAddress,
};
use service::{PoolHooks, PoolService};
use std::{fmt, sync::Arc, time::Duration};

/// Which of the free channels of a pool is given out next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PoolOrder {
    /// The one that came back last (the default): the others grow old, and a server may close them.
    #[default]
    Lifo,
    /// The one that has been free for the longest: all are kept in use.
    Fifo,
}

/// What becomes of an acquire that has waited for the pool's `acquire_timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AcquireTimeout {
    /// It fails with [`Error::TimedOut`] (the default).
    #[default]
    Fail,
    /// It gets a new channel, beyond the size of the pool; the pool shrinks again as channels come back.
    Open,
}

/// Settings of a [`ChannelPool`]; made by [`ClientBootstrap::pool`].
///
/// | setting | default | range |
/// |---|---|---|
/// | `size` | 8 channels | 1 or more |
/// | `max_waiters` | 1024 | 0 or more |
/// | `acquire_timeout` | 10 s | 0 or more |
/// | `on_timeout` | [`AcquireTimeout::Fail`] | |
/// | `order` | [`PoolOrder::Lifo`] | |
/// | `health_check` | that it is open | |
/// | `on_acquire` | nothing | |
#[must_use]
pub struct ChannelPoolBuilder<F, M> {
    bootstrap: ClientBootstrap<Arc<F>>,
    size: usize,
    max_waiters: usize,
    timeout: Duration,
    on_timeout: AcquireTimeout,
    order: PoolOrder,
    hooks: PoolHooks<M>,
}

impl<F, P> ClientBootstrap<Arc<F>>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// A pool of channels to one address.
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
            hooks: PoolHooks::default(),
        }
    }
}

impl<F, P> ChannelPoolBuilder<F, P::Message>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Channels that there are at most, free and acquired.
    pub fn size(mut self, channels: usize) -> Self {
        self.size = channels;
        self
    }

    /// Acquires that may wait for a channel; more fail with [`Error::Full`].
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.max_waiters = waiters;
        self
    }

    /// How long an acquire waits for a channel to come back; zero: not at all. What making a new one may take is the
    /// bootstrap's [`connect_timeout`](ClientBootstrap::connect_timeout).
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What becomes of an acquire when that time is up.
    pub fn on_timeout(mut self, what: AcquireTimeout) -> Self {
        self.on_timeout = what;
        self
    }

    /// Which free channel is given out next.
    pub fn order(mut self, order: PoolOrder) -> Self {
        self.order = order;
        self
    }

    /// Says whether a channel that has been used before may be given out again; if not, it is closed and another one is
    /// taken. It must not block. One that is closed is not even asked about; a panic counts as no.
    pub fn health_check(
        mut self,
        check: impl Fn(&Channel<P::Message>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.hooks.health_check = Some(Box::new(check));
        self
    }

    /// Is called with every channel before it is given out. An error, or a panic, fails the acquire with it, and the
    /// channel is closed; its place is free again.
    pub fn on_acquire(
        mut self,
        hook: impl Fn(&Channel<P::Message>) -> Result + Send + Sync + 'static,
    ) -> Self {
        self.hooks.on_acquire = Some(Box::new(hook));
        self
    }

    /// The pool; no connection is made yet.
    ///
    /// A host name is resolved here, once, which may block; its first address is taken.
    ///
    /// # Errors
    /// If a setting is out of its range, or the name has no address.
    pub fn build(self, address: impl ToAddress) -> Result<ChannelPool<P::Message>> {
        if self.size == 0 {
            return Err(Error::setting("size", 0, "1 or more"));
        }
        let config = self.bootstrap.check()?;
        let peer = address.addresses()?.swap_remove(0);
        let group = self.bootstrap.group.clone();
        let bootstrap = self.bootstrap;
        let call = move |attempt, done| {
            let call = Call { peer: peer.clone(), config: config.clone(), attempt, done };
            match bootstrap.assign(&config) {
                Ok((event_loop, assignment)) => {
                    bootstrap.call(event_loop, assignment, call, LoopShared::submit_now);
                }
                Err(e) => call.done.failed(e),
            }
        };
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

/// Channels to one address that are used again and again; can be cloned, sent and shared.
///
/// A channel that closes, whoever closes it, leaves the pool by itself, and another one may take its place. When the last
/// handle and the last [`PooledChannel`] are dropped, the free channels are closed.
pub struct ChannelPool<M: 'static> {
    service: Arc<PoolService<M>>,
}

impl<M: 'static> ChannelPool<M> {
    /// Completes with a channel that nobody else has: a free one, a new one if there is room, else one that comes back.
    ///
    /// First come, first served. Dropping the completion, or [`Completion::cancel`], leaves the
    /// queue and returns a channel that was acquired already. A connect that was started for a
    /// cancelled acquire continues, and its channel becomes free. [`Completion::detach`] stays in
    /// the queue, and returns the acquired channel immediately.
    ///
    /// The completion fails with [`Error::TimedOut`] after the pool's `acquire_timeout`, [`Error::Full`] if too many wait,
    /// [`Error::Closed`] if the pool is closed, what `on_acquire` failed with, [`Error::ShutDown`] if the loops are shut
    /// down, and as that of [`ClientBootstrap::connect`].
    pub fn acquire(&self) -> Completion<PooledChannel<M>> {
        self.service.acquire()
    }

    /// Gives a channel back, as dropping it does.
    ///
    /// # Errors
    /// [`Error::WrongOwner`] if it is another pool's; it is closed then, and leaves that one. [`Error::Closed`] if the pool is
    /// closed, and the channel is too.
    pub fn release(&self, channel: PooledChannel<M>) -> Result {
        channel.release_to(&self.service)
    }

    /// Closes the pool: acquires that wait fail, free channels are closed, those that are out are closed when they come
    /// back.
    pub fn close(&self) {
        self.service.close();
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.service.pool_state().is_closed()
    }

    /// Channels that are out, and those that are being made.
    pub fn acquired(&self) -> usize {
        self.service.pool_state().acquired()
    }

    /// Channels that wait to be acquired.
    pub fn free(&self) -> usize {
        self.service.pool_state().free()
    }

    /// Acquires that wait for a channel to come back.
    pub fn waiters(&self) -> usize {
        self.service.pool_state().waiters()
    }
}

impl<M: 'static> Clone for ChannelPool<M> {
    fn clone(&self) -> Self {
        ChannelPool { service: self.service.clone() }
    }
}

impl<M: 'static> fmt::Debug for ChannelPool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool_state = self.service.pool_state();
        let mut debug = f.debug_struct("ChannelPool");
        debug.field("acquired", &pool_state.acquired()).field("free", &pool_state.free());
        debug.field("waiters", &pool_state.waiters()).field("closed", &pool_state.is_closed()).finish()
    }
}
