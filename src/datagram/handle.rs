//! The handle of a datagram channel.
//!
//! Invariants: it owns no socket. Its requests go through the queue of the channel's loop, in the
//! order in which one thread made them. However the channel ends, its completions complete. Any
//! thread may use it.

use super::{
    DatagramInbox,
    handler::{AnyDatagramHandler, DatagramCommand, DatagramContext, DatagramHandler},
    queue,
    shared::DatagramShared,
};
use crate::{
    channel::Confirmation,
    error::{Error, Resource, Result, SendError},
    sync::{Completion, completion},
};
use bytes::Bytes;
use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

/// A handle to a datagram channel. Can be cloned, sent and shared. Created by
/// [`DatagramBootstrap`](crate::DatagramBootstrap).
///
/// Dropping the handles does not close the channel.
#[derive(Clone)]
pub struct DatagramChannel {
    shared: Arc<DatagramShared>,
    inbox: Arc<DatagramInbox>,
}

impl DatagramChannel {
    pub(crate) fn new(shared: Arc<DatagramShared>, inbox: Arc<DatagramInbox>) -> Self {
        DatagramChannel { shared, inbox }
    }

    /// Returns the address to which the channel was bound.
    pub fn local_address(&self) -> SocketAddr {
        self.shared.local_address
    }

    /// Returns whether the channel accepts datagrams: it is neither closed nor closing.
    pub fn is_open(&self) -> bool {
        self.shared.open.load(Ordering::Acquire)
    }

    /// Sends a datagram to `to`. If the system refuses it later, the error is reported to
    /// [`DatagramHandler::error`](crate::datagram::DatagramHandler::error).
    ///
    /// # Errors
    /// - [`Error::Closed`] if the channel is closed.
    /// - [`Error::Full`] if `max_outbound` bytes are pending, including datagrams in the loop's
    ///   queue, or if that queue is full.
    ///
    /// The datagram is returned.
    pub fn write_to(&self, datagram: impl Into<Bytes>, to: SocketAddr) -> Result<(), SendError<Bytes>> {
        self.deliver(datagram.into(), Some(to), None)
    }

    /// Sends a datagram to the peer of a connected channel. Otherwise like
    /// [`write_to`](DatagramChannel::write_to). If there is no peer, [`Error::NotConnected`] is
    /// reported to the handler's `error`.
    ///
    /// # Errors
    /// The errors of [`write_to`](DatagramChannel::write_to).
    pub fn write(&self, datagram: impl Into<Bytes>) -> Result<(), SendError<Bytes>> {
        self.deliver(datagram.into(), None, None)
    }

    /// Sends a datagram to `to`, and returns a completion that completes when the kernel has
    /// accepted it, or fails. Such a failure is not reported to the handler's `error`.
    ///
    /// # Errors
    /// The errors of [`write_to`](DatagramChannel::write_to).
    pub fn write_tracked_to(
        &self,
        datagram: impl Into<Bytes>,
        to: SocketAddr,
    ) -> Result<Completion, SendError<Bytes>> {
        self.deliver_tracked(datagram.into(), Some(to))
    }

    /// Sends a datagram to the peer of a connected channel, and returns a completion like
    /// [`write_tracked_to`](DatagramChannel::write_tracked_to).
    ///
    /// # Errors
    /// The errors of [`write_to`](DatagramChannel::write_to).
    pub fn write_tracked(&self, datagram: impl Into<Bytes>) -> Result<Completion, SendError<Bytes>> {
        self.deliver_tracked(datagram.into(), None)
    }

    fn deliver_tracked(
        &self,
        datagram: Bytes,
        to: Option<SocketAddr>,
    ) -> Result<Completion, SendError<Bytes>> {
        let (confirmation, completion) = Confirmation::new(self.shared.event_loop.id);
        self.deliver(datagram, to, Some(confirmation))?;
        Ok(completion)
    }

    fn deliver(
        &self,
        datagram: Bytes,
        to: Option<SocketAddr>,
        done: Option<Confirmation>,
    ) -> Result<(), SendError<Bytes>> {
        let shared = &self.shared;
        if !self.is_open() {
            return Err(SendError::new(datagram, Error::Closed));
        }
        let (weight, limit) = (queue::weight(&datagram), shared.max_outbound);
        let queued = shared.queued.fetch_add(weight, Ordering::Relaxed);
        let waiting = queued.saturating_add(shared.pending.load(Ordering::Relaxed));
        // Like the queue itself: a datagram is always accepted if no other one is pending.
        if waiting > 0 && waiting.saturating_add(weight) > limit {
            shared.dequeued(&datagram);
            shared.event_loop.metrics.datagrams_refused.add_shared(1);
            return Err(SendError::new(datagram, Error::Full { resource: Resource::ChannelOutput, limit }));
        }
        let command = DatagramCommand::Send { datagram, to, done };
        self.inbox.submit(&shared.event_loop, command).map_err(|refused| {
            let (DatagramCommand::Send { datagram, .. }, error) = refused.into_parts() else {
                unreachable!("the same command comes back")
            };
            shared.dequeued(&datagram);
            SendError::new(datagram, error)
        })
    }

    /// Runs `task` on the channel's loop with access to the channel, for example to connect it or
    /// to join a multicast group.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closed. [`Error::Full`] if the loop's queue is full. The
    /// task is dropped.
    pub fn execute(
        &self,
        task: impl FnOnce(&mut DatagramContext<'_, AnyDatagramHandler>) -> Result + Send + 'static,
    ) -> Result {
        if !self.is_open() {
            return Err(Error::Closed);
        }
        let command = DatagramCommand::Run(Box::new(task));
        self.inbox.submit(&self.shared.event_loop, command).map_err(Error::from)
    }

    /// Closes the channel. Pending datagrams are sent until the kernel would block. The others are
    /// dropped. Closing a closed channel is a no-op.
    pub fn close(&self) {
        // A full queue must not prevent closing. A loop that has ended has closed its channels.
        let _ = self.inbox.submit_always(&self.shared.event_loop, DatagramCommand::Close);
    }

    /// Completes when the channel's socket is closed. Completes immediately if it is already
    /// closed.
    pub fn closed(&self) -> Completion {
        let waiting = self.shared.closed.change(|closed| {
            let Some(waiting) = closed else { return (None, None) };
            let (completer, completion) = completion(Some(self.shared.event_loop.id));
            (Some(completion), Some(waiting.push(completer)))
        });
        waiting.unwrap_or_else(|| Completion::ready(Ok(())))
    }
}

impl<H: DatagramHandler> DatagramContext<'_, H> {
    /// Returns a handle to this channel, for other threads.
    pub fn channel(&self) -> DatagramChannel {
        DatagramChannel::new(self.state.handle().clone(), self.inbox.clone())
    }
}

impl fmt::Debug for DatagramChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, open) = (self.local_address(), self.is_open());
        f.debug_struct("DatagramChannel").field("local_address", &address).field("open", &open).finish()
    }
}
