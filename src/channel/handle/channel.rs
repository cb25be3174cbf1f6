//! The handle of a channel, for other channels and other threads.
//!
//! Invariants: a handle never keeps a connection open, and never touches its state. It puts mail
//! into the queue of the channel's loop. Its answers ([`is_open`](Channel::is_open),
//! [`is_writable`](Channel::is_writable)) are copies that the loop keeps up to date.

use super::{
    mail::{Mail, WriteTicket},
    pipeline_types::SizeHint,
    shared::ChannelShared,
    write_permit::WritePermit,
};
use crate::{
    Error, Result, channel::confirmation::Confirmation, error::SendError, id::ChannelId, sync::Completion,
};
use std::{
    any::{Any, TypeId},
    fmt,
    hash::{Hash, Hasher},
    marker::PhantomData,
    net::SocketAddr,
    sync::Arc,
};

/// A handle to a channel whose pipeline writes messages of type `M`.
///
/// It can be cloned, sent and shared between threads; two handles are equal if they name the same channel. Every
/// operation is put into the queue of the channel's event loop and runs there, in the order in which one thread
/// asked; if the channel is gone by then, it is dropped.
pub struct Channel<M> {
    shared: Arc<ChannelShared>,
    permit: WritePermit,
    message: PhantomData<fn(M)>,
}

impl<M> Channel<M> {
    pub(crate) fn new(shared: Arc<ChannelShared>) -> Self {
        Channel { shared, permit: WritePermit::default(), message: PhantomData }
    }

    /// The identity of the channel.
    pub fn id(&self) -> ChannelId {
        self.shared.id
    }

    /// Whether the channel takes writes: it is connected and nobody has closed it.
    pub fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    /// Whether a producer should go on: the channel is open, and what waits in its buffer and in its loop's queue is
    /// within the [water marks](crate::buffer::WaterMark).
    ///
    /// This is the same state that [`Context::is_writable`](crate::Context::is_writable) shows to the handler. After it was `false`,
    /// [`writability_changed`](crate::Handler::writability_changed) is called with `true` once the channel is writable
    /// again, and [`writable`](Channel::writable) completes.
    ///
    /// `true` is a permit for one [`write`](Channel::write) by this handle. That message is accepted
    /// regardless of its size and of other producers. So a producer that asks before each message is
    /// never refused, and memory is bounded by the high mark plus one message for each handle.
    ///
    /// A message counts from the moment it is submitted: 96 bytes plus its encoded size as
    /// [`Codec::encoded_len_hint`](crate::pipeline::Codec::encoded_len_hint) estimates it. Without a hint it counts as the
    /// longest of the channel's recent messages; the first one pauses its producers until it has been encoded. From its
    /// encoding on, a message counts with its real size.
    pub fn is_writable(&self) -> bool {
        let writable = self.takes_writes() && self.shared.producers.is_writable();
        if writable {
            self.permit.give();
        }
        writable
    }

    /// Completes when the channel is writable, at once if it is. Fails with
    /// [`Closed`](crate::Error::Closed) if the channel closes or its output ends first.
    ///
    /// For threads and async code; [`send`](Channel::send) also writes. A handler implements
    /// [`writability_changed`](crate::Handler::writability_changed). All waiters are notified together.
    ///
    /// A completion that is still awaited when it completes is a permit for one
    /// [`write`](Channel::write) by this handle, like `true` from
    /// [`is_writable`](Channel::is_writable). Dropping the pending completion leaves no permit behind.
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

    /// The address of this end, if the transport has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.shared.local_address
    }

    /// The address of the other end, if the transport has one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.shared.peer_address
    }

    /// Whether the calling thread is the channel's loop.
    pub fn in_event_loop(&self) -> bool {
        self.shared.outlet.in_event_loop()
    }

    /// Ends the output: the peer sees the end of the stream after what was written before; what it sends is still read.
    ///
    /// See [`Context::shutdown_write`](crate::Context::shutdown_write); on a channel that is gone it does nothing.
    pub fn shutdown_write(&self) {
        self.send_close(Mail::EndOutput);
    }

    /// Closes the channel after what was written before is sent (at most the channel's `close_timeout` later).
    ///
    /// Closing twice, or a channel that is gone, does nothing.
    pub fn close(&self) {
        self.send_close(Mail::Close);
    }

    /// Closes the channel at once and drops what was not sent.
    pub fn close_now(&self) {
        self.send_close(Mail::CloseNow);
    }

    /// Closes the channel at once with a reset (TCP), so that the peer sees an error and not the end of the stream.
    ///
    /// See [`Context::reset`](crate::Context::reset).
    pub fn reset(&self) {
        self.send_close(Mail::Reset);
    }

    fn send_close(&self, mail: Mail) {
        // If the loop has ended, so has the channel.
        let _ = self.shared.outlet.deliver(self.shared.id.key, mail);
    }

    /// Completes when the channel is closed; at once if it is.
    ///
    /// Its socket is closed then, or, after a graceful close,
    /// [lingers](crate::EventLoopGroupBuilder::max_lingering) without the channel. The channel has
    /// left its groups; unsent writes fail and `inactive` is called after this. All ends and their
    /// order are in `docs/endings.md`.
    pub fn closed(&self) -> Completion {
        self.shared.close_listeners.tell(self.shared.id.event_loop)
    }

    /// What it shares with its loop.
    pub(in crate::channel) fn shared(&self) -> &ChannelShared {
        &self.shared
    }
}

impl<M: 'static> Channel<M> {
    /// Writes a message: it is encoded on the channel's loop and sent at the end of that turn.
    ///
    /// A message that is accepted is sent, in the order in which one thread wrote, or the channel ends. There are three ways
    /// to end it: the channel closes for another reason; the encoding fails, which goes to the handler's
    /// [`error`](crate::Handler::error), and that closes the channel by default; or the message was written while the channel
    /// was not [writable](Channel::is_writable) and finds no room when it is encoded (its size was underestimated, or the
    /// loop's memory is used up), which goes to `error` as [`Full`](crate::Error::Full) and always closes the channel. If the
    /// pipeline is [replaced](crate::Context::replace_pipeline) by one of another message type before it, the message is dropped.
    /// Other policies than [`Overflow::Refuse`](crate::Overflow) drop messages as they say.
    ///
    /// # Errors
    /// The message comes back if the channel is closed; with [`PipelineReplaced`](Error::PipelineReplaced) if the pipeline writes messages of
    /// another type by now; and, unless the channel was [writable](Channel::is_writable) when this handle asked or is now, if
    /// it would not fit into `max_outbound` with what waits, or the loop's queue is full.
    pub fn write(&self, message: M) -> Result<(), SendError<M>>
    where
        M: Send,
    {
        self.submit(message, Mail::Message)
    }

    /// Waits until the channel is writable, then writes the message: a write with backpressure, for
    /// async code.
    ///
    /// At most one message for each pending `send` is queued beyond the high water mark. Dropping the
    /// future before it is ready drops the message, which is then not written. Several tasks may share
    /// the handle. The order of their messages is the order in which they continue.
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
    /// Those of [`write`](Channel::write), except [`Full`](crate::Error::Full). The message is returned.
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

    /// As [`write`](Channel::write), and tells when the kernel has taken the last byte of the message.
    ///
    /// What [`Context::write_tracked`](crate::Context::write_tracked) says of answers holds here too. If the encoding fails, the completion fails and the
    /// handler's [`error`](crate::Handler::error) is called, as for [`write`](Channel::write). If the channel closes first,
    /// the completion alone fails.
    ///
    /// # Errors
    /// As [`write`](Channel::write); the message also comes back, with [`Full`](crate::Error::Full), if 65,536 writes of the
    /// channel are not answered yet.
    pub fn write_tracked(&self, message: M) -> Result<Completion, SendError<M>>
    where
        M: Send,
    {
        let producers = &self.shared.producers;
        if let Err(reason) = producers.begin_unconfirmed() {
            return Err(SendError::new(message, reason));
        }
        let (confirmation, completion) = Confirmation::new(self.shared.id.event_loop);
        let sent = self.submit(message, |message, ticket| Mail::Notify(message, confirmation, ticket));
        if sent.is_err() {
            producers.end_unconfirmed(1);
        }
        sent.map(|()| completion)
    }

    fn submit(
        &self,
        message: M,
        mail: impl FnOnce(Box<dyn Any + Send>, WriteTicket) -> Mail,
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
        let producers = &self.shared.producers;
        let ticket = match self.admit(self.size_hint()(&message), self.take_permit()) {
            Ok(ticket) => ticket,
            Err(reason) => return Err(SendError::new(message, reason)),
        };
        let mail = mail(Box::new(message), ticket);
        match self.shared.outlet.deliver(self.shared.id.key, mail) {
            Ok(()) => {
                // Behind the submission: what is refused never made the channel unwritable. See `WriteGauge`.
                producers.add(ticket);
                Ok(())
            }
            Err((mail, reason)) => {
                let (Mail::Message(message, _) | Mail::Notify(message, ..)) = mail else {
                    unreachable!("the same mail comes back")
                };
                let value = *message.downcast::<M>().expect("the same message comes back");
                Err(SendError::new(value, reason))
            }
        }
    }

    /// Takes the permit for one message, if this handle has seen a writable channel.
    pub(in crate::channel) fn take_permit(&self) -> bool {
        self.permit.take()
    }

    /// Returns the function that estimates the encoded size of a message.
    pub(in crate::channel) fn size_hint(&self) -> SizeHint {
        self.shared.size_hint()
    }

    /// Decides whether a message of this size may be queued; see `Producers::admit`.
    pub(in crate::channel) fn admit(&self, size: Option<usize>, permit: bool) -> Result<WriteTicket> {
        self.shared.producers.admit(size, permit)
    }

    /// Whether the pipeline writes messages of this type.
    pub(crate) fn fits_message(&self) -> bool {
        self.shared.fits(|types| types.message == TypeId::of::<M>())
    }

    /// Whether the channel's handler is an `H`, and always has been if its pipeline was never replaced.
    pub(crate) fn fits_handler<H: 'static>(&self) -> bool {
        self.shared.fits(|types| types.handler == TypeId::of::<H>())
    }

    /// Returns the time of the loop's clock.
    pub(crate) fn now(&self) -> u64 {
        self.shared.outlet.now()
    }

    pub(crate) fn deliver(&self, mail: Mail) -> Result {
        if !self.is_open() {
            return Err(Error::Closed);
        }
        if !self.fits_message() {
            return Err(Error::PipelineReplaced);
        }
        self.shared.outlet.deliver(self.shared.id.key, mail).map_err(|(_, reason)| reason)
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
