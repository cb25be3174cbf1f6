//! A channel that is out of its pool.
//!
//! Always holds: it goes back once, released or dropped, or is discarded. On any thread.

use crate::{Channel, Error, Result};
use std::{fmt, ops::Deref, sync::Arc};

/// A channel that was acquired from a [`ChannelPool`](super::ChannelPool), and goes back when this is dropped.
///
/// It goes back as it is: whoever leaves an exchange half done should [`discard`](PooledChannel::discard) it. Handles that were
/// cloned from it should not be used any longer once it is back.
pub struct PooledChannel<M: 'static> {
    channel: Channel<M>,
    /// None once the channel has been returned.
    owner: Option<Arc<dyn PoolOwner<M>>>,
}

/// The pool that a channel was taken from.
pub(super) trait PoolOwner<M>: Send + Sync {
    /// Takes a channel back.
    ///
    /// # Errors
    /// If the pool is closed; the channel is closed as well.
    fn come_back(self: Arc<Self>, channel: &Channel<M>) -> Result;

    /// Closes a channel and frees its place in the pool.
    fn discard(self: Arc<Self>, channel: &Channel<M>);
}

impl<M: 'static> PooledChannel<M> {
    pub(super) fn new(channel: Channel<M>, owner: Arc<dyn PoolOwner<M>>) -> Self {
        PooledChannel { channel, owner: Some(owner) }
    }

    /// Closes the channel, after what was written is sent; its place in the pool is free at once.
    ///
    /// Merely to [`close`](Channel::close) the channel takes until its loop hears of it: given back before, it might be
    /// given out once more.
    pub fn discard(mut self) {
        if let Some(owner) = self.owner.take() {
            owner.discard(&self.channel);
        }
    }

    /// Returns the channel to `pool`, or closes it if it belongs to another pool.
    pub(super) fn release_to(mut self, pool: &Arc<impl PoolOwner<M>>) -> Result {
        match self.owner.take() {
            Some(mine) if std::ptr::addr_eq(Arc::as_ptr(&mine), Arc::as_ptr(pool)) => {
                mine.come_back(&self.channel)
            }
            _ => {
                self.channel.close();
                Err(Error::WrongOwner { owner: "the channel pool" })
            }
        }
    }
}

impl<M: 'static> Deref for PooledChannel<M> {
    type Target = Channel<M>;

    fn deref(&self) -> &Channel<M> {
        &self.channel
    }
}

impl<M: 'static> Drop for PooledChannel<M> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            // A pool that is closed has closed the channel.
            let _ = owner.come_back(&self.channel);
        }
    }
}

impl<M: 'static> fmt::Debug for PooledChannel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PooledChannel").field(&self.channel).finish()
    }
}
