//! Channel groups, and messages for all of their members.
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
pub use report::{Broadcast, BroadcastReport};
pub(crate) use shared_broadcast::Delivery;

use crate::{
    SendError,
    channel::handle::{Channel, LeaveAtClose},
    id::ChannelId,
    sync::{Completer, Completion, completion_of_all},
};
use members::{Members, Part, Permitted, selected};
use shared_broadcast::{Sending, SharedBroadcast};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use waiting::WaitingDeliveries;

/// Channels that write messages of type `M`, to be written to all at once: a room, a topic, everybody who is logged in.
///
/// A handle: clones are the same group. A channel may be in any number of groups, of whatever loops. It leaves by itself
/// when it closes, or when its pipeline is replaced by one with another message type. Everything can be called from any
/// thread, also from a handler's callback.
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
/// # What a broadcast costs
///
/// One task and at most one wake for each loop that has members, however many these are. The message is encoded once for
/// all members whose codec and stages are of the same types and say that they encode alike
/// ([`Codec::encoding_key`](crate::pipeline::Codec::encoding_key)); all those of this crate do. Its bytes are copied into
/// the buffers of the members if they are few, and kept once for all from a KiB on. For other members it is cloned and encoded
/// one by one. What several broadcasts of a turn have written to a member is sent to it in one go.
///
/// # Order
///
/// A member receives what one thread broadcasts to the group, and writes to the member through a [`Channel`], in the order of
/// the calls. That holds for closing a member, too. Members on different loops may receive the broadcasts of two threads in
/// different orders.
///
/// Groups share a loop fairly. A loop writes to 4096 members in a turn at most and goes on in the next turn; groups that have
/// more waiting take turns after 256 members each. So a flood of broadcasts to one group does not delay another one. It also
/// means that broadcasts of *different* groups may overtake each other, also at a channel that is a member of both.
///
/// # Members that do not keep up
///
/// Each member's own limit ([`max_outbound`](crate::ChannelOptions::max_outbound)) and policy
/// ([`Overflow`](crate::Overflow)) decide what becomes of the message there; nobody else waits for it. A member that refuses it
/// has its handler's [`error`](crate::Handler::error) told [`Error::Full`](crate::Error::Full), since it has missed a message: by
/// default that closes it. [`Broadcast::report`] says how many took it and how many did not.
///
/// A message that cannot be encoded is nobody's fault but the program's: no handler is told, it is in the report and in the log.
pub struct ChannelGroup<M> {
    inner: Arc<GroupShared<M>>,
}

struct GroupShared<M> {
    members: Mutex<Members<M>>,
    /// What some loop has not got to the end of.
    waiting: Arc<WaitingDeliveries>,
    stay_closed: bool,
}

impl<M> GroupShared<M> {
    fn lock(&self) -> MutexGuard<'_, Members<M>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By what its members know it.
    fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }
}

impl<M: 'static> LeaveAtClose for GroupShared<M> {
    fn leave(&self, id: ChannelId) {
        self.lock().remove(id);
    }
}

impl<M> Drop for GroupShared<M> {
    fn drop(&mut self) {
        let group = self.address();
        let members = self.members.get_mut().unwrap_or_else(PoisonError::into_inner);
        members.each(|channel| channel.shared().close_listeners.forget(group));
    }
}

impl<M: 'static> ChannelGroup<M> {
    /// An empty group with the default settings of [`ChannelGroup::builder`].
    pub fn new() -> Self {
        let waiting =
            WaitingDeliveries::new(builder::DEFAULT_MAX_WAITING, builder::DEFAULT_MAX_WAITING_DELIVERIES);
        Self::with(waiting, false)
    }

    /// A group with settings.
    pub fn builder() -> ChannelGroupBuilder<M> {
        ChannelGroupBuilder::new()
    }

    fn with(waiting: WaitingDeliveries, stay_closed: bool) -> Self {
        let inner = GroupShared { members: Mutex::default(), waiting: Arc::new(waiting), stay_closed };
        ChannelGroup { inner: Arc::new(inner) }
    }

    // ---- members -------------------------------------------------------------------------------------

    /// Makes a channel a member until it leaves or closes; whether it has become one by this.
    ///
    /// It has not if it was one already, is closed or closing, or writes messages of another type since its pipeline was
    /// [replaced](crate::Context::replace_pipeline). A group that
    /// [stays closed](ChannelGroupBuilder::stay_closed), and is, closes it.
    pub fn join(&self, channel: Channel<M>) -> bool {
        let mut members = self.inner.lock();
        if members.is_closed() {
            drop(members);
            channel.close();
            return false;
        }
        if !channel.is_open() || members.contains(channel.id()) {
            return false;
        }
        let weak: Weak<GroupShared<M>> = Arc::downgrade(&self.inner);
        // Should it close right now, it waits for the lock before it leaves.
        if !channel.shared().close_listeners.leave(weak) {
            return false;
        }
        // Asked only now: should its pipeline be replaced right now, either this shows it, or the channel finds the group
        // among those that it has to leave.
        if !channel.fits_message() {
            channel.shared().close_listeners.forget(self.inner.address());
            return false;
        }
        members.insert(channel);
        true
    }

    /// Ends a membership; whether there was one.
    pub fn leave(&self, id: ChannelId) -> bool {
        let mut members = self.inner.lock();
        let Some(channel) = members.remove(id) else { return false };
        channel.shared().close_listeners.forget(self.inner.address());
        true
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.inner.lock().len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the channel is a member.
    pub fn contains(&self, id: ChannelId) -> bool {
        self.inner.lock().contains(id)
    }

    /// The members as they are now, in no particular order; shared with others who ask until a member joins or leaves.
    pub fn channels(&self) -> Arc<[Channel<M>]> {
        self.inner.lock().channels()
    }

    /// Calls `f` with each of those who are members now; `f` may let members join and leave.
    pub fn for_each(&self, f: impl FnMut(&Channel<M>)) {
        self.channels().iter().for_each(f);
    }

    /// Has those leave for whom `stays` answers false.
    pub fn retain(&self, mut stays: impl FnMut(&Channel<M>) -> bool) {
        for channel in self.channels().iter() {
            if !stays(channel) {
                self.leave(channel.id());
            }
        }
    }

    /// Closes all members, each after what was written to it before is sent; completes when the
    /// last channel is closed.
    ///
    /// Members that join meanwhile are not concerned, unless the group [stays closed](ChannelGroupBuilder::stay_closed).
    /// Waiting for it on the loop of a member is an error, not a deadlock.
    pub fn close(&self) -> Completion {
        let channels = {
            let mut members = self.inner.lock();
            if self.inner.stay_closed {
                members.set_closed();
            }
            members.channels()
        };
        // Those of a loop stand together.
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

/// Completes when the last clone of it is dropped.
struct AllClosed(Option<Completer>);

impl Drop for AllClosed {
    fn drop(&mut self) {
        if let Some(completer) = self.0.take() {
            completer.complete(Ok(()));
        }
    }
}

// ---- broadcasts ------------------------------------------------------------------------------------------

impl<M: Clone + Send + Sync + 'static> ChannelGroup<M> {
    /// Writes a message to all members: returns at once, the loops of the members do it.
    ///
    /// # Errors
    /// The message comes back with [`Error::Full`](crate::Error::Full) if too many broadcasts of this group wait already
    /// ([`max_waiting`](ChannelGroupBuilder::max_waiting),
    /// [`max_waiting_deliveries`](ChannelGroupBuilder::max_waiting_deliveries)); and if none of the members' loops takes it, with the reason of one of them. If only some do
    /// not, [`Broadcast::unreached`] says how many members that concerns.
    pub fn broadcast(&self, message: M) -> Result<Broadcast, SendError<M>> {
        let (parts, members) = {
            let mut members = self.inner.lock();
            (members.parts(), members.len())
        };
        self.send(message, parts, members, None)
    }

    /// As [`broadcast`](ChannelGroup::broadcast), to all members but one: who has said it knows it.
    ///
    /// # Errors
    /// As [`broadcast`](ChannelGroup::broadcast).
    pub fn broadcast_except(&self, id: ChannelId, message: M) -> Result<Broadcast, SendError<M>> {
        let (parts, members, except) = {
            let mut members = self.inner.lock();
            let except = Some(id).filter(|id| members.contains(*id));
            (members.parts(), members.len() - usize::from(except.is_some()), except)
        };
        self.send(message, parts, members, except)
    }

    /// As [`broadcast`](ChannelGroup::broadcast), to those members for whom `filter` answers true; it is asked here and now.
    ///
    /// With a filter that asks [`Channel::is_writable`], the message counts at each selected member from
    /// now on and is always accepted there. A broadcaster that selects only writable members exceeds
    /// the high mark of a member by one message at most, and is never refused.
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
    /// As [`broadcast`](ChannelGroup::broadcast).
    pub fn broadcast_where(
        &self,
        filter: impl FnMut(&Channel<M>) -> bool,
        message: M,
    ) -> Result<Broadcast, SendError<M>> {
        let (parts, entitled) = selected(&self.channels(), filter, &message);
        let members = parts.iter().map(|part| part.keys.len()).sum();
        self.send_to(message, parts, members, None, &entitled)
    }

    fn send(
        &self,
        message: M,
        parts: Arc<[Part]>,
        members: usize,
        except: Option<ChannelId>,
    ) -> Result<Broadcast, SendError<M>> {
        self.send_to(message, parts, members, except, &[])
    }

    fn send_to(
        &self,
        message: M,
        parts: Arc<[Part]>,
        members: usize,
        except: Option<ChannelId>,
        entitled: &[Permitted<M>],
    ) -> Result<Broadcast, SendError<M>> {
        let waiting = &self.inner.waiting;
        if let Err(reason) = waiting.begin(members) {
            return Err(SendError::new(message, reason));
        }
        let shared_broadcast =
            SharedBroadcast::new(message, Sending { parts, members, except, waiting: waiting.clone() });
        shared_broadcast.send(entitled)
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
            .field("members", &self.inner.lock().len())
            .field("waiting", &self.inner.waiting.broadcasts())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Handler, Pipeline, codec::RawBytes, testing::EmbeddedChannel};
    use bytes::Bytes;

    struct Quiet;

    impl Handler for Quiet {
        type Read = Bytes;
        type Write = Bytes;

        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> crate::Result {
            Ok(())
        }
    }

    #[test]
    fn a_channel_keeps_nothing_of_groups_that_it_has_left_or_that_are_gone() {
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
        assert_eq!(channel.shared().close_listeners.len(), 0, "left");
        assert!(rooms[..3].iter().all(|room| room.join(channel.clone())));
        channel.closed().detach();
        assert_eq!(channel.shared().close_listeners.len(), 4);
        drop(rooms);
        assert_eq!(channel.shared().close_listeners.len(), 1, "the groups are gone");
        assert!(ChannelGroup::new().join(channel.clone()));
        member.close();
        assert_eq!(channel.shared().close_listeners.len(), 0, "closed");
    }

    #[test]
    fn nothing_of_a_broadcast_stays_when_it_is_over() {
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
        assert!(message.is_unique(), "although the handles of the broadcasts are there");
        drop(broadcasts);
        let ended = room.broadcast(message.clone()).unwrap();
        drop(member);
        assert_eq!(room.inner.waiting.broadcasts(), 0, "the channel's loop is gone");
        assert_eq!(ended.report().wait().unwrap().unreached, 1);
        assert!(room.is_empty());
    }
}
