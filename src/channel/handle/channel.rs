//! The handle of a channel, for any thread.
//!
//! Invariants: a handle never keeps a connection open, and never accesses its state. It puts mail
//! into the queue of the channel's loop. Its queries ([`is_open`](Channel::is_open),
//! [`is_writable`](Channel::is_writable)) read copies that the loop keeps up to date.

use super::{
    MailSender,
    mail::{LatestMessage, Mail},
    pipeline_types::SizeHint,
    reservation::{MemberReservation, Reservation},
    shared::{ChannelShared, TaskPermit},
    write_permit::WritePermit,
};
use crate::{
    channel::{close_cause::CloseCause, confirmation::Confirmation, exchanges::Reuse},
    error::{Error, Result, SendError},
    id::ChannelId,
    sync::{Completion, ReservedWeight},
};
use std::{
    any::{Any, TypeId},
    fmt,
    hash::{Hash, Hasher},
    marker::PhantomData,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

/// A handle to a channel whose pipeline writes messages of type `M`.
///
/// It can be cloned and used on any thread. Two handles are equal if they refer to the same
/// channel. Every operation is queued for the channel's event loop and runs there. Operations of
/// one thread keep their order. An operation is dropped if the channel has closed before it runs.
pub struct Channel<M> {
    shared: Arc<ChannelShared>,
    permit: WritePermit,
    message: PhantomData<fn(M)>,
}

impl<M> Channel<M> {
    pub(crate) fn new(shared: Arc<ChannelShared>) -> Self {
        Channel { shared, permit: WritePermit::default(), message: PhantomData }
    }

    pub(crate) fn mail_sender(&self) -> &Arc<dyn MailSender> {
        &self.shared.sender
    }

    /// Returns a handle for a pipeline of other messages that will
    /// [replace](crate::Context::replace_pipeline) the current one. Its messages arrive behind what
    /// this thread has requested before, for example behind the replacement itself. A message that
    /// arrives too early is dropped, and only [`write_tracked`](Channel::write_tracked) reports
    /// that. Once the pipeline was replaced, a write of a message that does not fit fails with
    /// [`PipelineReplaced`](Error::PipelineReplaced).
    ///
    /// Two channels that change to another protocol at the same time exchange such handles, for
    /// example to relay a WebSocket connection.
    pub fn for_replacement<N>(&self) -> Channel<N> {
        Channel::new(self.shared.clone())
    }

    /// Returns the identity of the channel.
    pub fn id(&self) -> ChannelId {
        self.shared.id
    }

    /// Returns whether the channel is connected and no close was requested. After
    /// [`shutdown_write`](Channel::shutdown_write) it is still open, although writes fail.
    pub fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    /// Returns whether a producer may continue: the channel is open, and its pending bytes and
    /// queued messages are within the [water marks](crate::buffer::WaterMark).
    ///
    /// The handler sees the same state in [`Context::is_writable`](crate::Context::is_writable).
    /// After `false`, two things happen when the channel is writable again:
    /// [`writability_changed`](crate::Handler::writability_changed) is called with `true`, and
    /// [`writable`](Channel::writable) completes.
    ///
    /// `true` is a permit for one [`write`](Channel::write) by this handle. That message is
    /// accepted regardless of its size and of other producers. A producer that calls this before
    /// each message is therefore never refused, and memory is bounded by the high mark plus one
    /// message for each handle.
    ///
    /// A message counts from the moment it is submitted. Its weight is 96 bytes plus its encoded
    /// size as estimated by [`Codec::encoded_len_hint`](crate::pipeline::Codec::encoded_len_hint).
    /// Without a hint, the weight is that of the longest recent message of the channel. The first
    /// message fills the channel up to its high mark until it has been encoded. After encoding, a
    /// message counts with its real size.
    pub fn is_writable(&self) -> bool {
        let writable = self.takes_writes() && self.shared.producers.is_writable();
        if writable {
            self.permit.give();
        }
        writable
    }

    /// Completes when the channel is writable, immediately if it is. Fails with
    /// [`Closed`](crate::Error::Closed) if the channel closes or its output ends first.
    ///
    /// For threads and async code. [`send`](Channel::send) waits and writes. A handler implements
    /// [`writability_changed`](crate::Handler::writability_changed). All waiters are notified
    /// together.
    ///
    /// A completion that is still awaited when it completes is a permit for one
    /// [`write`](Channel::write) by this handle, like `true` from
    /// [`is_writable`](Channel::is_writable). Dropping the pending completion leaves no permit
    /// behind.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// fn produce(channel: &Channel<bytes::Bytes>, messages: Vec<bytes::Bytes>) -> Result {
    ///     for message in messages {
    ///         channel.writable().wait()?;
    ///         channel.write(message)?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn writable(&self) -> Completion {
        self.shared.producers.writable(self.shared.id.event_loop, &self.permit, || self.takes_writes())
    }

    fn takes_writes(&self) -> bool {
        self.shared.takes_writes()
    }

    /// Returns the local address, if the transport has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.shared.local_address
    }

    /// Returns the address of the peer, if the transport has one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.shared.peer_address
    }

    /// Returns how long a reconnecting client waits after the end of this channel.
    pub(crate) fn reconnect_hint(&self) -> Duration {
        self.shared.reconnect_after()
    }

    /// Returns whether the calling thread is the channel's loop.
    pub fn in_event_loop(&self) -> bool {
        self.shared.sender.in_event_loop()
    }

    /// Shuts down the write half after flushing pending writes. The peer sees the end of the
    /// stream; input is still read.
    ///
    /// See [`Context::shutdown_write`](crate::Context::shutdown_write). No-op if the channel is
    /// closed.
    pub fn shutdown_write(&self) {
        self.send_close(Mail::EndOutput);
    }

    /// Closes the channel after flushing pending writes, or when its `close_timeout` expires.
    ///
    /// No-op if the channel is closing or closed.
    pub fn close(&self) {
        self.send_close(Mail::Close);
    }

    /// Closes the channel immediately and drops pending writes.
    pub fn close_now(&self) {
        self.send_close(Mail::CloseNow);
    }

    /// Closes the channel immediately with a reset (TCP). The peer sees an error instead of the end
    /// of the stream.
    ///
    /// See [`Context::reset`](crate::Context::reset).
    pub fn reset(&self) {
        self.send_close(Mail::Reset);
    }

    fn send_close(&self, mail: Mail) {
        // If the loop has ended, so has the channel.
        let _ = self.shared.sender.deliver(self.shared.id.key, mail);
    }

    /// Completes with the cause when the channel is closed, immediately if it is.
    ///
    /// The socket is closed by then, or, after a graceful close,
    /// [lingers](crate::group::EventLoopGroupBuilder::max_lingering) without the channel. The
    /// channel has left its groups. Afterwards unsent writes fail and `inactive` is called.
    /// `docs/endings.md` describes all ends and their order.
    pub fn closed(&self) -> Completion<CloseCause> {
        self.shared.close_listeners.completion_on(self.shared.id.event_loop)
    }

    /// Returns why the channel has ended, or `None` before [`closed`](Channel::closed) completes.
    pub fn close_cause(&self) -> Option<CloseCause> {
        self.shared.close_listeners.cause()
    }

    /// Returns whether a pool can hand the channel to another user according to the protocol. A
    /// protocol that does not report its exchanges leaves that to the user, while the channel takes
    /// messages.
    pub(crate) fn reuse(&self) -> Reuse {
        match self.shared.exchanges.as_ref().map_or(Reuse::Now, |exchanges| exchanges.reuse()) {
            Reuse::Now if !self.takes_writes() => Reuse::Never,
            reuse => reuse,
        }
    }

    /// Calls `callback` when no exchange is in progress; see [`Exchanges::when_idle`].
    ///
    /// [`Exchanges::when_idle`]: crate::channel::Exchanges::when_idle
    pub(crate) fn when_idle(&self, callback: impl FnOnce() + Send + 'static) {
        match &self.shared.exchanges {
            Some(exchanges) => exchanges.when_idle(callback),
            None => callback(),
        }
    }

    /// Returns the state that is shared with the loop.
    pub(in crate::channel) fn shared(&self) -> &ChannelShared {
        &self.shared
    }
}

#[cfg(test)]
impl<M> Channel<M> {
    pub(super) fn shared_arc(&self) -> Arc<ChannelShared> {
        self.shared.clone()
    }
}

impl<M: 'static> Channel<M> {
    /// Writes a message. It is encoded on the channel's loop and sent at the end of that turn.
    ///
    /// Messages of one thread are sent in order. An accepted message is sent unless one of the
    /// following happens:
    ///
    /// - The channel closes for another reason.
    /// - The encoding fails. The handler's [`error`](crate::Handler::error) is called, which closes
    ///   the channel by default.
    /// - The message was written while the channel was not [writable](Channel::is_writable), and
    ///   the buffer is full when it is encoded: its size was underestimated, or the loop's memory
    ///   is used up. The handler's `error` is called with [`Full`](crate::Error::Full), and the
    ///   channel always closes.
    /// - The pipeline was [replaced](crate::Context::replace_pipeline) by one with another message
    ///   type. The message is dropped.
    /// - The policy is not [`Overflow::Refuse`](crate::channel::Overflow) and drops the message.
    ///
    /// # Errors
    /// - [`Closed`](crate::Error::Closed) if the channel is closed.
    /// - [`PipelineReplaced`](Error::PipelineReplaced) if the pipeline now writes messages of
    ///   another type.
    /// - [`Full`](crate::Error::Full) if the message does not fit into `max_outbound` in addition
    ///   to pending bytes, or the loop's queue is full. This does not happen if the channel is
    ///   [writable](Channel::is_writable), or was when this handle last checked.
    ///
    /// The message is returned.
    pub fn write(&self, message: M) -> Result<(), SendError<M>>
    where
        M: Send,
    {
        self.submit(message, Mail::Message)
    }

    /// Waits until the channel is writable, then writes the message: a write with backpressure, for
    /// async code.
    ///
    /// At most one message for each pending `send` is queued beyond the high water mark. Dropping
    /// the future before it is ready drops the message without writing it. Several tasks may share
    /// the handle. Their messages are written in the order in which the tasks continue.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// async fn produce(channel: Channel<bytes::Bytes>, messages: Vec<bytes::Bytes>) -> Result {
    ///     for message in messages {
    ///         channel.send(message).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`write`](Channel::write), except [`Full`](crate::Error::Full). The message is
    /// returned.
    pub async fn send(&self, message: M) -> Result<(), SendError<M>>
    where
        M: Send,
    {
        // A separate handle, so that the permit belongs to this message only.
        let own = self.clone();
        if let Err(reason) = own.writable().await {
            return Err(SendError::new(message, reason));
        }
        own.write(message)
    }

    /// Like [`write`](Channel::write), but returns a completion that completes when the kernel has
    /// accepted the last byte of the message.
    ///
    /// [`Context::write_tracked`](crate::Context::write_tracked) describes the completion. If the
    /// encoding fails, the completion fails and the handler's [`error`](crate::Handler::error) is
    /// called, as for [`write`](Channel::write). If the channel closes first, only the completion
    /// fails.
    ///
    /// # Errors
    /// [`Full`](crate::Error::Full) if 65,536 tracked writes of the channel are pending. Otherwise
    /// the errors of [`write`](Channel::write). The message is returned.
    pub fn write_tracked(&self, message: M) -> Result<Completion, SendError<M>>
    where
        M: Send,
    {
        let producers = &self.shared.producers;
        if let Err(reason) = producers.begin_unconfirmed() {
            return Err(SendError::new(message, reason));
        }
        let (confirmation, completion) = Confirmation::new(self.shared.id.event_loop);
        let sent = self.submit(message, |message, reserved| Mail::Notify(message, confirmation, reserved));
        if sent.is_err() {
            producers.end_unconfirmed(1);
        }
        sent.map(|()| completion)
    }

    /// Like [`write`](Channel::write), but replaces a waiting message with the same key.
    ///
    /// [`Context::write_latest`](crate::Context::write_latest) describes the replacement. Messages
    /// in the queue of the loop are not replaced. They count against the limits of the channel
    /// until the loop has encoded them.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// fn publish(reader: &Channel<bytes::Bytes>, symbol: u32, price: f64) -> Result {
    ///     reader.write_latest(symbol.into(), format!("{symbol} {price}").into())?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`write`](Channel::write). The message is returned.
    pub fn write_latest(&self, key: u64, message: M) -> Result<(), SendError<M>>
    where
        M: Send,
    {
        self.submit_latest(key, message, None)
    }

    /// Like [`write_latest`](Channel::write_latest), but returns a completion that completes when
    /// the kernel has accepted the last byte of the message. It fails with
    /// [`Conflated`](Error::Conflated) if a newer message replaces this one.
    ///
    /// # Errors
    /// The errors of [`write_tracked`](Channel::write_tracked). The message is returned.
    pub fn write_tracked_latest(&self, key: u64, message: M) -> Result<Completion, SendError<M>>
    where
        M: Send,
    {
        let producers = &self.shared.producers;
        if let Err(reason) = producers.begin_unconfirmed() {
            return Err(SendError::new(message, reason));
        }
        let (confirmation, completion) = Confirmation::new(self.shared.id.event_loop);
        let sent = self.submit_latest(key, message, Some(confirmation));
        if sent.is_err() {
            producers.end_unconfirmed(1);
        }
        sent.map(|()| completion)
    }

    fn submit_latest(
        &self,
        key: u64,
        message: M,
        confirmation: Option<Confirmation>,
    ) -> Result<(), SendError<M>>
    where
        M: Send,
    {
        self.submit(message, |message, reserved| {
            Mail::Latest(Box::new(LatestMessage { key, message, confirmation, reserved }))
        })
    }

    fn submit(
        &self,
        message: M,
        mail: impl FnOnce(Box<dyn Any + Send>, ReservedWeight) -> Mail,
    ) -> Result<(), SendError<M>>
    where
        M: Send,
    {
        if !self.takes_writes() {
            return Err(SendError::new(message, Error::Closed));
        }
        if !self.fits_message() {
            return Err(SendError::new(message, Error::PipelineReplaced));
        }
        let size = self.size_hint()(&message);
        let (reservation, reserved) = match Reservation::new(&*self.shared, size, self.take_permit()) {
            Ok(reservation) => reservation,
            Err(reason) => return Err(SendError::new(message, reason)),
        };
        let mail = mail(Box::new(message), reserved);
        // Counted before the submission, so that the channel is not idle with a message on its way.
        let exchanges = self.shared.exchanges.as_deref();
        if let Some(exchanges) = exchanges {
            exchanges.queue();
        }
        match self.shared.sender.deliver(self.shared.id.key, mail) {
            Ok(()) => {
                reservation.hand_over();
                Ok(())
            }
            Err((mail, reason)) => {
                if let Some(exchanges) = exchanges {
                    exchanges.take();
                }
                let message = mail.into_message().and_then(|message| message.downcast::<M>().ok());
                let value = *message.expect("a refused message is returned unchanged");
                Err(SendError::new(value, reason))
            }
        }
    }

    /// Takes the permit for one message, if this handle has observed a writable channel.
    fn take_permit(&self) -> bool {
        self.permit.take()
    }

    /// Returns the function that estimates the encoded size of a message.
    pub(in crate::channel) fn size_hint(&self) -> SizeHint {
        self.shared.size_hint()
    }

    /// Reserves the weight of a broadcast message of this size, if this handle has a permit. The
    /// handle becomes the reservation, because its permit is used up.
    #[inline]
    pub(in crate::channel) fn reserve_permitted(
        self,
        size: impl FnOnce(SizeHint) -> Option<usize>,
    ) -> Option<MemberReservation> {
        if !self.take_permit() {
            return None;
        }
        let size = size(self.size_hint());
        // A message with a permit is not refused.
        Reservation::new(self.shared, size, true).ok().map(|(reservation, _)| reservation)
    }

    /// Returns whether the pipeline writes messages of this type.
    pub(crate) fn fits_message(&self) -> bool {
        self.shared.fits(|types| types.message == TypeId::of::<M>())
    }

    /// Returns whether the channel's handler is an `H`, and always was if its pipeline was never
    /// replaced.
    pub(crate) fn fits_handler<H: 'static>(&self) -> bool {
        self.shared.fits(|types| types.handler == TypeId::of::<H>())
    }

    /// Takes the permit of a task.
    ///
    /// # Errors
    /// [`Error::Full`] if the limit of tasks is reached.
    pub(crate) fn take_task_permit(&self) -> Result<TaskPermit> {
        TaskPermit::take(&self.shared)
    }

    pub(crate) fn deliver(&self, mail: Mail) -> Result {
        if !self.is_open() {
            return Err(Error::Closed);
        }
        if !self.fits_message() {
            return Err(Error::PipelineReplaced);
        }
        self.shared.sender.deliver(self.shared.id.key, mail).map_err(|(_, reason)| reason)
    }
}

impl<M> Clone for Channel<M> {
    fn clone(&self) -> Self {
        Channel::new(self.shared.clone())
    }
}

impl<M> PartialEq for Channel<M> {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<M> Eq for Channel<M> {}

impl<M> Hash for Channel<M> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.id().hash(state);
    }
}

impl<M> fmt::Debug for Channel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("id", &self.id())
            .field("peer", &self.peer_address())
            .field("open", &self.is_open())
            .finish()
    }
}
