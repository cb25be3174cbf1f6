//! A channel that is out of its pool.
//!
//! Always holds: it goes back once, released or dropped, or is discarded. On any thread.

use super::service::PoolService;
use crate::{Channel, Error, Result};
use std::{fmt, ops::Deref, sync::Arc};

/// A channel that was acquired from a [`ChannelPool`](super::ChannelPool), and goes back when this is dropped.
///
/// It goes back as it is: whoever leaves an exchange half done should [`discard`](Pooled::discard) it. Handles that were
/// cloned from it should not be used any longer once it is back.
pub struct Pooled<M: 'static> {
    channel: Channel<M>,
    /// None once it is back.
    service: Option<Arc<PoolService<M>>>,
}

impl<M: 'static> Pooled<M> {
    pub(super) fn new(channel: Channel<M>, service: Arc<PoolService<M>>) -> Self {
        Pooled { channel, service: Some(service) }
    }

    /// Closes the channel, after what was written is sent; its place in the pool is free at once.
    ///
    /// Merely to [`close`](Channel::close) the channel takes until its loop hears of it: given back before, it might be
    /// given out once more.
    pub fn discard(mut self) {
        if let Some(service) = self.service.take() {
            service.discard(&self.channel);
        }
    }

    pub(super) fn release_to(mut self, to: &Arc<PoolService<M>>) -> Result {
        match self.service.take() {
            Some(mine) if Arc::ptr_eq(&mine, to) => mine.come_back(&self.channel),
            _ => {
                self.channel.close();
                Err(Error::Foreign { to: "the channel pool" })
            }
        }
    }
}

impl<M: 'static> Deref for Pooled<M> {
    type Target = Channel<M>;

    fn deref(&self) -> &Channel<M> {
        &self.channel
    }
}

impl<M: 'static> Drop for Pooled<M> {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            // A pool that is closed has closed it.
            let _ = service.come_back(&self.channel);
        }
    }
}

impl<M: 'static> fmt::Debug for Pooled<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pooled").field(&self.channel).finish()
    }
}
