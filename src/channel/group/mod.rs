//! Channel groups and broadcasts.
//!
//! A [`ChannelGroup`] keeps its members by loop. A broadcast uses a copy of the membership. The
//! copy is made if a channel has joined or left since the last one, and is shared until then. So
//! joining ten thousand channels in a row copies nothing. Each loop that has members receives one
//! delivery through its queue, however many members it has. `event_loop::turn` writes to them
//! within the limit of a turn.
//!
//! Lock order: a group, then the close listeners of a channel. When a channel closes, the lock of
//! the listeners is released before the group is entered.
//!
//! Invariants: every member is connected, or its close is in progress: a channel leaves before its
//! [`Channel::closed`] completes. No lock is held while members are written to, or while code of
//! the program runs, such as a filter. Any thread may call everything here. Messages are encoded on
//! the loops of the members. A group owns neither channels nor connections, and does not keep them
//! open.

mod builder;
mod members;
mod report;
mod shared_broadcast;
mod waiting;

pub use builder::ChannelGroupBuilder;
pub use report::Broadcast;
#[cfg(test)]
pub(crate) use shared_broadcast::TestGroup;

use super::Channel;
use crate::{
    channel::handle::{LeaveAtClose, PartReservations},
    error::SendError,
    id::ChannelId,
    machine::Mutex,
    sync::{Completer, Completion, completion_of_all},
};
use members::{Members, selected};
use shared_broadcast::{Sending, SharedBroadcast};
use std::{
    fmt,
    sync::{Arc, Weak},
};
use waiting::WaitingDeliveries;

/// A set of channels that receive broadcasts of messages of type `M`, such as a chat room, a topic,
/// or all logged-in users.
///
/// Clones are handles to the same group. A channel may be in any number of groups, and the members
/// of a group may be on different loops. A channel leaves when it closes, or when its pipeline is
/// replaced by one with another message type. All methods can be called from any thread, also in a
/// handler's callback.
///
/// ```
/// use netwheel::{ChannelGroup, codec::Line, prelude::*};
/// use bytes::Bytes;
///
/// struct Member { room: ChannelGroup<Bytes> }
///
/// impl Handler for Member {
///     type Read = Bytes;
///     type Write = Bytes;
///
///     fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
///         self.room.join(ctx.channel());
///         Ok(())
///     }
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
///         self.room.broadcast_except(ctx.id(), line)?;
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().threads(2).build()?;
/// let room = ChannelGroup::new();
/// let server = ServerBootstrap::new(&group)
///     .pipeline(move |_peer| Pipeline::codec(Line::new()).handler(Member { room: room.clone() }))
///     .bind("127.0.0.1:0")?;
/// # drop(server);
/// # Ok(())
/// # }
/// ```
///
/// # Cost of a broadcast
///
/// Each loop that has members receives one task and at most one wakeup, however many members it
/// has.
///
/// The message is encoded once for all members whose codec and stages have the same types and the
/// same [encoding key](crate::pipeline::Codec::encoding_key). All codecs of this crate support
/// this. Encoded messages below one KiB are copied into the buffers of the members; longer ones are
/// shared. For other members the message is cloned and encoded separately. If several broadcasts
/// write to a member in one turn, their bytes are sent together.
///
/// # Order
///
/// A member receives the broadcasts of one thread to the group, and that thread's writes through a
/// [`Channel`], in the order of the calls. Closing a member keeps this order too. A
/// [`Context::write`](crate::Context::write) is encoded at once and precedes the broadcasts of the
/// same callback; after [`Context::close_with`](crate::Context::close_with) these do not reach the
/// channel itself. Members on different loops may receive the broadcasts of two threads in
/// different orders.
///
/// Groups share a loop fairly. A loop writes to at most 4096 members in a turn and continues in the
/// next turn. If several groups have deliveries waiting, they take turns after 256 members each, so
/// a flood of broadcasts to one group does not delay another group. As a consequence, broadcasts of
/// *different* groups may overtake each other, even at a channel that is a member of both.
///
/// # Slow members
///
/// Each member's own limit ([`max_outbound`](crate::channel::ChannelOptions::max_outbound)) and
/// policy ([`Overflow`](crate::channel::Overflow)) apply to the message. A slow member does not
/// delay other members. If a member refuses the message, its handler's
/// [`error`](crate::Handler::error) is called with [`Error::Full`](crate::Error::Full), because the
/// member has missed a message. By default that closes the channel. [`Broadcast::report`] counts
/// the members by result.
///
/// A message that cannot be encoded is an error of the program. It is counted in the report and
/// logged, and no handler is called.
pub struct ChannelGroup<M> {
    inner: Arc<GroupShared<M>>,
}

struct GroupShared<M> {
    members: Mutex<Members<M>>,
    /// The broadcasts that some loop has not finished.
    waiting: Arc<WaitingDeliveries>,
    stay_closed: bool,
    is_bulk: bool,
}

impl<M> GroupShared<M> {
    /// The address by which its members identify the group.
    fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }
}

impl<M: 'static> LeaveAtClose for GroupShared<M> {
    fn leave(&self, id: ChannelId) {
        self.members.lock().remove(id);
    }
}

impl<M> Drop for GroupShared<M> {
    fn drop(&mut self) {
        let group = self.address();
        let members = self.members.get_mut();
        members.each(|channel| channel.shared().close_listeners.forget(group));
    }
}

impl<M: 'static> ChannelGroup<M> {
    /// Creates an empty group with the default settings of [`ChannelGroup::builder`].
    pub fn new() -> Self {
        let waiting =
            WaitingDeliveries::new(builder::DEFAULT_MAX_WAITING, builder::DEFAULT_MAX_WAITING_DELIVERIES);
        Self::with(waiting, false, false)
    }

    /// Returns a builder with default settings.
    pub fn builder() -> ChannelGroupBuilder<M> {
        ChannelGroupBuilder::new()
    }

    fn with(waiting: WaitingDeliveries, stay_closed: bool, is_bulk: bool) -> Self {
        let waiting = Arc::new(waiting);
        let inner = GroupShared { members: Mutex::default(), waiting, stay_closed, is_bulk };
        ChannelGroup { inner: Arc::new(inner) }
    }

    // ---- members --------------------------------------------------------------------------------

    /// Adds a channel to the group until it leaves or closes. Returns whether the channel was
    /// added.
    ///
    /// Returns `false` if the channel is a member already, or is closed or closing. Also returns
    /// `false` if the channel writes messages of another type since its pipeline was
    /// [replaced](crate::Context::replace_pipeline). A closed group that [stays
    /// closed](ChannelGroupBuilder::stay_closed) closes the channel and returns `false`.
    pub fn join(&self, channel: Channel<M>) -> bool {
        let mut members = self.inner.members.lock();
        if members.is_closed() {
            drop(members);
            channel.close();
            return false;
        }
        if !channel.is_open() || members.contains(channel.id()) {
            return false;
        }
        let weak: Weak<GroupShared<M>> = Arc::downgrade(&self.inner);
        // A channel that closes at this moment waits for the lock before it leaves.
        if !channel.shared().close_listeners.leave(weak) {
            return false;
        }
        // Checked after the registration. If the pipeline is replaced at this moment, either this
        // check fails, or the channel leaves the group, which is registered by now.
        if !channel.fits_message() {
            channel.shared().close_listeners.forget(self.inner.address());
            return false;
        }
        members.insert(channel);
        true
    }

    /// Removes a member. Returns whether the channel was a member.
    pub fn leave(&self, id: ChannelId) -> bool {
        let mut members = self.inner.members.lock();
        let Some(channel) = members.remove(id) else { return false };
        channel.shared().close_listeners.forget(self.inner.address());
        true
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.inner.members.lock().len()
    }

    /// Returns whether the group is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the channel is a member.
    pub fn contains(&self, id: ChannelId) -> bool {
        self.inner.members.lock().contains(id)
    }

    /// Returns a snapshot of the members, in no particular order. It is shared between callers
    /// until a member joins or leaves.
    pub fn channels(&self) -> Arc<[Channel<M>]> {
        self.inner.members.lock().channels()
    }

    /// Calls `f` with each present member. `f` may add and remove members.
    pub fn for_each(&self, f: impl FnMut(&Channel<M>)) {
        self.channels().iter().for_each(f);
    }

    /// Retains only the channels for which `stays` returns `true`.
    pub fn retain(&self, mut stays: impl FnMut(&Channel<M>) -> bool) {
        for channel in self.channels().iter() {
            if !stays(channel) {
                self.leave(channel.id());
            }
        }
    }

    /// Closes all members gracefully, so that pending writes are flushed. Completes when the last
    /// channel is closed.
    ///
    /// Does not affect members that join later, unless the group [stays
    /// closed](ChannelGroupBuilder::stay_closed). Waiting for the completion on the loop of a
    /// member is an error, not a deadlock.
    pub fn close(&self) -> Completion {
        let channels = {
            let mut members = self.inner.members.lock();
            if self.inner.stay_closed {
                members.set_closed();
            }
            members.channels()
        };
        // The channels of a loop are adjacent.
        let mut loops: Vec<u32> = channels.iter().map(|channel| channel.id().event_loop).collect();
        loops.dedup();
        let (completer, completion) = completion_of_all(loops.into());
        let last = Arc::new(AllClosed(Some(completer)));
        for channel in channels.iter() {
            let last = last.clone();
            channel.closed().on_complete(move |_| drop(last));
            channel.close();
        }
        completion
    }
}

/// Completes when its last clone is dropped.
struct AllClosed(Option<Completer>);

impl Drop for AllClosed {
    fn drop(&mut self) {
        if let Some(completer) = self.0.take() {
            completer.complete(Ok(()));
        }
    }
}

// ---- broadcasts ------------------------------------------------------------------------------

impl<M: Clone + Send + Sync + 'static> ChannelGroup<M> {
    /// Writes a message to all members. Returns immediately; the loops of the members write it.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) if too many broadcasts of this group wait already
    /// ([`max_waiting`](ChannelGroupBuilder::max_waiting),
    /// [`max_waiting_deliveries`](ChannelGroupBuilder::max_waiting_deliveries)). If all of the
    /// members' loops refuse the message, the error of one of them, such as
    /// [`Error::Overloaded`](crate::Error::Overloaded) in a
    /// [bulk](ChannelGroupBuilder::bulk) group. Both return the message. If
    /// only some loops refuse it, [`Broadcast::unreached`] returns the number of their members.
    pub fn broadcast(&self, message: M) -> Result<Broadcast, SendError<M>> {
        self.send(message, None)
    }

    /// Like [`broadcast`](ChannelGroup::broadcast), but skips `id`, which is usually the sender.
    ///
    /// # Errors
    /// The errors of [`broadcast`](ChannelGroup::broadcast).
    pub fn broadcast_except(&self, id: ChannelId, message: M) -> Result<Broadcast, SendError<M>> {
        self.send_except(id, message, None)
    }

    /// Like [`broadcast`](ChannelGroup::broadcast), but only for the members for which `filter`
    /// returns `true`. The filter is called before this method returns.
    ///
    /// With a filter that calls [`Channel::is_writable`], the message counts at each selected
    /// member from now on and is always accepted there. A broadcaster that selects only writable
    /// members exceeds the high mark of a member by at most one message, and is never refused.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # fn news(room: &ChannelGroup<bytes::Bytes>, message: bytes::Bytes) -> Result {
    /// room.broadcast_where(|member| member.is_writable(), message)?.report().detach();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`broadcast`](ChannelGroup::broadcast).
    pub fn broadcast_where(
        &self,
        filter: impl FnMut(&Channel<M>) -> bool,
        message: M,
    ) -> Result<Broadcast, SendError<M>> {
        self.send_where(filter, message, None)
    }

    /// Like [`broadcast`](ChannelGroup::broadcast), but the message replaces the one with the same
    /// key that waits for a member.
    ///
    /// [`Context::write_latest`](crate::Context::write_latest) describes the replacement. Each
    /// member replaces for itself: a member that keeps up gets every message, and a slow one the
    /// newest. All members share one encoding. A replacement counts as written in the report.
    /// Broadcasts in the queue of a loop are not replaced.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # fn tick(readers: &ChannelGroup<bytes::Bytes>, symbol: u32, price: bytes::Bytes) -> Result {
    /// readers.broadcast_latest(symbol.into(), price)?.report().detach();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`broadcast`](ChannelGroup::broadcast).
    pub fn broadcast_latest(&self, key: u64, message: M) -> Result<Broadcast, SendError<M>> {
        self.send(message, Some(key))
    }

    /// Like [`broadcast_latest`](ChannelGroup::broadcast_latest), but skips `id`.
    ///
    /// # Errors
    /// The errors of [`broadcast`](ChannelGroup::broadcast).
    pub fn broadcast_latest_except(
        &self,
        id: ChannelId,
        key: u64,
        message: M,
    ) -> Result<Broadcast, SendError<M>> {
        self.send_except(id, message, Some(key))
    }

    /// Like [`broadcast_latest`](ChannelGroup::broadcast_latest), but only for the members for
    /// which `filter` returns `true`. See [`broadcast_where`](ChannelGroup::broadcast_where).
    ///
    /// # Errors
    /// The errors of [`broadcast`](ChannelGroup::broadcast).
    pub fn broadcast_latest_where(
        &self,
        filter: impl FnMut(&Channel<M>) -> bool,
        key: u64,
        message: M,
    ) -> Result<Broadcast, SendError<M>> {
        self.send_where(filter, message, Some(key))
    }

    fn send(&self, message: M, latest: Option<u64>) -> Result<Broadcast, SendError<M>> {
        let (parts, members) = {
            let mut members = self.inner.members.lock();
            (members.parts(), members.len())
        };
        let (is_bulk, waiting) = (self.inner.is_bulk, self.inner.waiting.clone());
        let sending = Sending { parts, members, except: None, latest, is_bulk, waiting };
        self.send_to(message, sending, Vec::new())
    }

    fn send_except(&self, id: ChannelId, message: M, latest: Option<u64>) -> Result<Broadcast, SendError<M>> {
        let (parts, members, except) = {
            let mut members = self.inner.members.lock();
            let except = Some(id).filter(|id| members.contains(*id));
            (members.parts(), members.len() - usize::from(except.is_some()), except)
        };
        let (is_bulk, waiting) = (self.inner.is_bulk, self.inner.waiting.clone());
        let sending = Sending { parts, members, except, latest, is_bulk, waiting };
        self.send_to(message, sending, Vec::new())
    }

    fn send_where(
        &self,
        filter: impl FnMut(&Channel<M>) -> bool,
        message: M,
        latest: Option<u64>,
    ) -> Result<Broadcast, SendError<M>> {
        let (parts, reserved) = selected(&self.channels(), filter, &message);
        let members = parts.iter().map(|part| part.keys.len()).sum();
        let (is_bulk, waiting) = (self.inner.is_bulk, self.inner.waiting.clone());
        let sending = Sending { parts, members, except: None, latest, is_bulk, waiting };
        self.send_to(message, sending, reserved)
    }

    fn send_to(
        &self,
        message: M,
        sending: Sending,
        reserved: Vec<PartReservations>,
    ) -> Result<Broadcast, SendError<M>> {
        if let Err(reason) = sending.waiting.begin(sending.members) {
            return Err(SendError::new(message, reason));
        }
        SharedBroadcast::new(message, sending).send(reserved)
    }
}

impl<M: 'static> Default for ChannelGroup<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> Clone for ChannelGroup<M> {
    fn clone(&self) -> Self {
        ChannelGroup { inner: self.inner.clone() }
    }
}

impl<M> fmt::Debug for ChannelGroup<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelGroup")
            .field("members", &self.inner.members.lock().len())
            .field("waiting", &self.inner.waiting.broadcasts())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        channel::Pipeline,
        codec::RawBytes,
        pipeline::{Context, Handler},
        testing::EmbeddedChannel,
    };
    use bytes::Bytes;

    struct Quiet;

    impl Handler for Quiet {
        type Read = Bytes;
        type Write = Bytes;

        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> crate::error::Result {
            Ok(())
        }
    }

    #[test]
    fn a_channel_forgets_groups_that_it_left_or_that_were_dropped() {
        let mut member = EmbeddedChannel::new(Pipeline::codec(RawBytes).handler(Quiet));
        let channel = member.channel();
        let rooms: Vec<ChannelGroup<Bytes>> = (0..10).map(|_| ChannelGroup::new()).collect();
        for _ in 0..100 {
            for room in &rooms {
                assert!(room.join(channel.clone()) && room.leave(channel.id()));
                room.join(channel.clone());
            }
            rooms.iter().for_each(|room| room.retain(|_| false));
        }
        assert_eq!(channel.shared().close_listeners.len(), 0, "it left all groups");
        assert!(rooms[..3].iter().all(|room| room.join(channel.clone())));
        channel.closed().detach();
        assert_eq!(channel.shared().close_listeners.len(), 4);
        drop(rooms);
        assert_eq!(channel.shared().close_listeners.len(), 1, "the groups were dropped");
        assert!(ChannelGroup::new().join(channel.clone()));
        member.close();
        assert_eq!(channel.shared().close_listeners.len(), 0, "the channel is closed");
    }

    #[test]
    fn a_finished_broadcast_releases_its_message() {
        let mut member = EmbeddedChannel::new(Pipeline::codec(RawBytes).handler(Quiet));
        let room = ChannelGroup::new();
        assert!(room.join(member.channel()));
        let message = Bytes::from(vec![0; 10]);
        let broadcasts = [
            room.broadcast(message.clone()).unwrap(),
            room.broadcast_where(|_| true, message.clone()).unwrap(),
            room.broadcast_where(|_| false, message.clone()).unwrap(),
        ];
        assert_eq!(room.inner.waiting.broadcasts(), 2);
        member.run_pending();
        assert_eq!(room.inner.waiting.broadcasts(), 0);
        assert!(message.is_unique(), "the handles of the broadcasts do not keep it");
        drop(broadcasts);
        let ended = room.broadcast(message.clone()).unwrap();
        drop(member);
        assert_eq!(room.inner.waiting.broadcasts(), 0, "the channel's loop has ended");
        assert_eq!(ended.report().wait().unwrap().unreached, 1);
        assert!(room.is_empty());
    }
}
