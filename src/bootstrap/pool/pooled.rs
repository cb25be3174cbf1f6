//! A channel that was acquired from a pool.
//!
//! Invariant: the channel is returned or discarded exactly once. Works on any thread.

use crate::{
    channel::Channel,
    error::{Error, Result},
};
use std::{fmt, ops::Deref, sync::Arc};

/// A channel that was acquired from a [`ChannelPool`](super::ChannelPool). Dropping it returns the
/// channel.
///
/// A channel of an [`HttpClient`](crate::http::HttpClient) is handed out again only when its
/// exchange is complete: a channel that is returned while a response is outstanding becomes free at
/// the end of the response. It leaves the pool if one of its [`Call`](crate::http::Call)s is given
/// up, or if the server will close it. If other calls still wait for their responses then, the
/// channel is closed after them, and counts until it has closed.
///
/// A channel of any other pipeline is returned in its current state.
/// [`discard`](PooledChannel::discard) it if an exchange with the peer is incomplete. Do not use
/// cloned handles of the channel after it has been returned.
pub struct PooledChannel<M: 'static> {
    channel: Channel<M>,
    /// `None` after the channel has been returned.
    owner: Option<Arc<dyn PoolOwner<M>>>,
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "for HTTP clients"))]
    is_reused: bool,
}

/// The pool that a channel was taken from.
pub(super) trait PoolOwner<M>: Send + Sync {
    /// Takes a channel back.
    ///
    /// # Errors
    /// [`Error::Closed`] if the pool is closed; the channel is closed as well.
    fn release(self: Arc<Self>, channel: &Channel<M>) -> Result;

    /// Closes a channel and frees its place in the pool.
    fn discard(self: Arc<Self>, channel: &Channel<M>);
}

impl<M: 'static> PooledChannel<M> {
    pub(super) fn new(channel: Channel<M>, owner: Arc<dyn PoolOwner<M>>, is_reused: bool) -> Self {
        PooledChannel { channel, owner: Some(owner), is_reused }
    }

    /// Returns whether the channel was handed out before, so that the peer may have closed it.
    #[cfg(feature = "http")]
    pub(super) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Closes the channel after flushing pending writes. Frees its place in the pool immediately.
    ///
    /// [`close`](Channel::close) takes effect only when the channel's loop processes it. A channel
    /// that is returned before that might be handed out again.
    pub fn discard(mut self) {
        if let Some(owner) = self.owner.take() {
            owner.discard(&self.channel);
        }
    }

    /// Returns the channel to `pool`, or closes it if it belongs to another pool.
    pub(super) fn release_to(mut self, pool: &Arc<impl PoolOwner<M>>) -> Result {
        match self.owner.take() {
            Some(mine) if std::ptr::addr_eq(Arc::as_ptr(&mine), Arc::as_ptr(pool)) => {
                mine.release(&self.channel)
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
            // A closed pool has closed the channel.
            let _ = owner.release(&self.channel);
        }
    }
}

impl<M: 'static> fmt::Debug for PooledChannel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PooledChannel").field(&self.channel).finish()
    }
}
