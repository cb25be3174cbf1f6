//! The handle of a channel: what other channels and other threads hold.
//!
//! Always holds: a handle never keeps a connection open, and never touches its state: it puts mail into the queue
//! of the channel's loop. What it can be asked ([`is_open`](Channel::is_open), [`is_writable`](Channel::is_writable))
//! is a copy that the loop keeps up to date.

use super::{
    at_close::AtClose,
    config::ChannelConfig,
    ledger::Confirmation,
    mail::{Mail, Outlet},
    scope::{Scope, ScopeTask},
    stats::ChannelStats,
};
use crate::{
    Error, Result,
    buffer::{ENTRY_OVERHEAD, WaterMark},
    clock::nanos,
    error::Refused,
    id::ChannelId,
    sync::{Completion, Holding},
};
use std::{
    any::{Any, TypeId},
    fmt,
    hash::{Hash, Hasher},
    marker::PhantomData,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A handle to a channel whose pipeline writes messages of type `M`.
///
/// It can be cloned, sent and shared between threads; two handles are equal if they name the same channel. Every
/// operation is put into the queue of the channel's event loop and runs there, in the order in which one thread
/// asked; if the channel is gone by then, it is dropped.
pub struct Channel<M> {
    shared: Arc<ChannelShared>,
    message: PhantomData<fn(M)>,
}

/// What the handles of a channel share with its loop.
pub(crate) struct ChannelShared {
    pub(super) id: ChannelId,
    pub(super) outlet: Arc<dyn Outlet>,
    local_address: Option<SocketAddr>,
    peer_address: Option<SocketAddr>,
    high: usize,
    max_outbound: usize,
    open: AtomicBool,
    output_ended: AtomicBool,
    writable: AtomicBool,
    /// Weight of what waits in the channel's buffer, as of the last callback or flush.
    pending: AtomicUsize,
    /// Weight of the messages that wait in the loop's queue.
    queued: AtomicUsize,
    pub(super) inbound_mark: WaterMark,
    pub(super) holding: Holding,
    pub(super) at_close: AtClose,
    /// What the pipeline is typed by, once it was replaced; handles of other types are no longer of use.
    replaced: OnceLock<Box<Mutex<PipelineTypes>>>,
}

/// What the handles to a pipeline are typed by: [`Channel`] by its message, `Remote` by its handler as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PipelineTypes {
    pub(crate) message: TypeId,
    pub(crate) handler: TypeId,
}

impl ChannelShared {
    pub(crate) fn new(
        id: ChannelId,
        outlet: Arc<dyn Outlet>,
        addresses: (Option<SocketAddr>, Option<SocketAddr>),
        config: &ChannelConfig,
    ) -> Self {
        ChannelShared {
            id,
            outlet,
            local_address: addresses.0,
            peer_address: addresses.1,
            high: config.water_mark.high(),
            max_outbound: config.refused_at(),
            open: AtomicBool::new(true),
            output_ended: AtomicBool::new(false),
            writable: AtomicBool::new(true),
            pending: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            inbound_mark: config.inbound_mark,
            holding: Holding::default(),
            at_close: AtClose::new(),
            replaced: OnceLock::new(),
        }
    }

    /// The pipeline was replaced by one with other messages: groups have no use for the channel any more.
    pub(crate) fn leave_groups(&self) {
        self.at_close.leave_groups(self.id);
    }

    /// The pipeline was replaced by one of these types.
    pub(crate) fn set_types(&self, types: PipelineTypes) {
        let current = self.replaced.get_or_init(|| Box::new(Mutex::new(types)));
        *current.lock().unwrap_or_else(PoisonError::into_inner) = types;
    }

    /// Whether a handle still fits the pipeline; it does while none was replaced.
    #[inline]
    fn fits(&self, fits: impl FnOnce(PipelineTypes) -> bool) -> bool {
        self.replaced.get().is_none_or(|types| fits(*types.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    #[inline]
    pub(crate) fn set_pending(&self, pending: usize, writable: bool) {
        self.pending.store(pending, Ordering::Relaxed);
        self.writable.store(writable, Ordering::Relaxed);
    }

    /// A message has left the loop's queue.
    pub(crate) fn dequeued(&self) {
        self.queued.fetch_sub(ENTRY_OVERHEAD, Ordering::Relaxed);
    }

    /// No more can be written.
    pub(crate) fn set_output_ended(&self) {
        self.output_ended.store(true, Ordering::Release);
    }

    pub(crate) fn set_closing(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// The channel is closed: it leaves its groups, then the completions of `closed` complete.
    pub(crate) fn set_closed(&self) {
        self.set_closing();
        self.at_close.run(self.id);
    }
}

impl<M> Channel<M> {
    pub(crate) fn new(shared: Arc<ChannelShared>) -> Self {
        Channel { shared, message: PhantomData }
    }

    /// The identity of the channel.
    pub fn id(&self) -> ChannelId {
        self.shared.id
    }

    /// Whether the channel takes writes: it is connected and nobody has closed it.
    pub fn is_open(&self) -> bool {
        self.shared.open.load(Ordering::Acquire)
    }

    /// Whether a writer should go on: the channel is open, and what waits in its buffer and in the loop's queue
    /// is within the [water marks](crate::buffer::WaterMark).
    ///
    /// Messages count from the moment they are submitted: 96 bytes each until they are encoded, then their size.
    pub fn is_writable(&self) -> bool {
        self.takes_writes()
            && self.shared.writable.load(Ordering::Relaxed)
            && self.waiting() <= self.shared.high
    }

    fn takes_writes(&self) -> bool {
        self.is_open() && !self.shared.output_ended.load(Ordering::Acquire)
    }

    fn waiting(&self) -> usize {
        let queued = self.shared.queued.load(Ordering::Relaxed);
        self.shared.pending.load(Ordering::Relaxed).saturating_add(queued)
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
    /// See [`Scope::shutdown_write`]; on a channel that is gone it does nothing.
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
        self.shared.at_close.tell(self.shared.id.event_loop)
    }

    /// What it shares with its loop.
    pub(super) fn shared(&self) -> &ChannelShared {
        &self.shared
    }
}

impl<M: 'static> Channel<M> {
    /// Writes a message: it is encoded on the channel's loop and sent at the end of that turn.
    ///
    /// If the encoding fails, the error goes to the handler's [`error`](crate::Handler::error). So does
    /// [`Full`](crate::Error::Full), if the message was on its way when the limit was reached: how long it is, only its
    /// encoding shows. A handler that wants to keep such a channel answers `Ok` without closing; a program that wants to
    /// know of each message asks with [`write_notify`](Channel::write_notify). If the pipeline is
    /// [replaced](Scope::replace_pipeline) by one of another message type before it, the message is dropped.
    ///
    /// # Errors
    /// The message comes back if the channel is closed, if `max_outbound` bytes wait already, if the loop's queue is full,
    /// or, with [`Replaced`](Error::Replaced), if the pipeline writes messages of another type by now.
    pub fn write(&self, message: M) -> Result<(), Refused<M>>
    where
        M: Send,
    {
        self.send(message, Mail::Message)
    }

    /// As [`write`](Channel::write), and tells when the kernel has taken the last byte of the message.
    ///
    /// What [`Scope::write_notify`] says of answers holds here too. If the encoding fails, or the channel closes before it,
    /// the completion is told, and not the handler.
    ///
    /// # Errors
    /// As [`write`](Channel::write).
    pub fn write_notify(&self, message: M) -> Result<Completion, Refused<M>>
    where
        M: Send,
    {
        let (confirmation, completion) = Confirmation::new(self.shared.id.event_loop);
        self.send(message, |message| Mail::Notify(message, confirmation))?;
        Ok(completion)
    }

    fn send(&self, message: M, mail: impl FnOnce(Box<dyn Any + Send>) -> Mail) -> Result<(), Refused<M>>
    where
        M: Send,
    {
        if !self.takes_writes() {
            return Err(Refused { value: message, reason: Error::Closed });
        }
        if !self.fits_message() {
            return Err(Refused { value: message, reason: Error::Replaced });
        }
        let limit = self.shared.max_outbound;
        if self.waiting() >= limit {
            return Err(Refused { value: message, reason: Error::Full { what: "outbound bytes", limit } });
        }
        self.shared.queued.fetch_add(ENTRY_OVERHEAD, Ordering::Relaxed);
        let mail = mail(Box::new(message));
        self.shared.outlet.deliver(self.shared.id.key, mail).map_err(|(mail, reason)| {
            self.shared.dequeued();
            let (Mail::Message(message) | Mail::Notify(message, _)) = mail else {
                unreachable!("the same mail comes back")
            };
            let value = *message.downcast::<M>().expect("the same message comes back");
            Refused { value, reason }
        })
    }

    /// Runs `task` on the channel's loop, with what may be done to the channel there.
    ///
    /// # Errors
    /// If the channel is closed, its pipeline was replaced by one of another message type, or the loop's queue is full; the
    /// task is dropped.
    pub fn execute(&self, task: impl FnOnce(&mut Scope<'_, M>) -> Result + Send + 'static) -> Result {
        self.deliver(Mail::Run(Box::new(ScopeTask::new(task))))
    }

    /// Runs `task` on the channel's loop after `delay`; dropped with the channel if that is closed first, and with its
    /// pipeline if that is replaced.
    ///
    /// # Errors
    /// As [`execute`](Channel::execute).
    pub fn schedule(
        &self,
        delay: Duration,
        task: impl FnOnce(&mut Scope<'_, M>) -> Result + Send + 'static,
    ) -> Result {
        let deadline = self.shared.outlet.now().saturating_add(nanos(delay));
        self.deliver(Mail::Schedule(deadline, Box::new(ScopeTask::new(task))))
    }

    /// Whether the pipeline writes messages of this type.
    pub(crate) fn fits_message(&self) -> bool {
        self.shared.fits(|types| types.message == TypeId::of::<M>())
    }

    /// Whether the channel's handler is an `H`, and always has been if its pipeline was never replaced.
    pub(crate) fn fits_handler<H: 'static>(&self) -> bool {
        self.shared.fits(|types| types.handler == TypeId::of::<H>())
    }

    /// What the channel has moved so far; asked on its loop, behind what one thread asked of the channel before.
    ///
    /// The completion fails with [`Closed`](Error::Closed) if the channel is, with [`Full`](Error::Full) if the loop's queue
    /// is. What it had moved when it closed is known to its handler's [`inactive`](crate::Handler::inactive)
    /// ([`Scope::stats`]).
    pub fn stats(&self) -> Completion<ChannelStats> {
        let (confirmation, completion) = Confirmation::new(self.shared.id.event_loop);
        let asked = self.execute(move |scope| {
            confirmation.complete(Ok(scope.stats()));
            Ok(())
        });
        match asked {
            Ok(()) => completion,
            Err(refused) => Completion::ready(Err(refused)),
        }
    }

    pub(crate) fn deliver(&self, mail: Mail) -> Result {
        if !self.is_open() {
            return Err(Error::Closed);
        }
        if !self.fits_message() {
            return Err(Error::Replaced);
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
