//! A room: its messages, its members, and the changes that have not been announced to them yet.
//!
//! The messages are a topic. Active members are its members, so they receive the messages in the
//! order of their offsets, and announcements of joins and leaves. Passive members receive the
//! number of messages to the room instead, which is the same line for all of them. In a large room
//! the number of members is announced instead of names. Both numbers are conflated: a member that
//! reads slowly receives the newest one.
//!
//! Invariants: a user whose membership has changed stays in the news until the members' loops have
//! accepted an announcement with the user's current state. The members' lists therefore converge,
//! even if announcements are refused for a while. A message that a passive member does not receive
//! is in a number that it receives. Messages are delivered one after the other, on any thread.

use super::{
    format::{MESSAGES, RoomFormat, on_event, topic_name},
    member_map::MemberMap,
    members::{Members, News},
    own_copies::OwnCopies,
};
use crate::{
    hub::{self, Hub, lock},
    message_id::MessageId,
    protocol::Reply,
    session::Session,
};
use netwheel::{
    Channel, ChannelGroup, ChannelId, Completion, HandlerRef, Result, SendError,
    broker::{
        self, HistoryLimits, Joined, NewMessage, Position, Receipt, Subscription, Topic, TopicWatch, Topics,
    },
    channel::Broadcast,
};
use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// What is kept of the messages of a room. Less than a client may have in its queue.
const HISTORY: HistoryLimits =
    HistoryLimits::new().messages(1000).bytes(256 * 1024).age(Duration::from_secs(24 * 60 * 60));

/// Where the messages for a new member begin.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    /// With at most this number of earlier messages.
    Last(u64),
    /// Behind a position that the client has seen.
    After(Position),
    /// Now, although the client has asked for messages behind a position.
    Unknown,
}

pub(crate) struct Room {
    name: Arc<str>,
    /// Tells apart the numbers of different rooms that wait for a member.
    number: u64,
    /// The messages. Its members are the receivers.
    topic: Topic<Reply>,
    /// Set when there was a passive member, for which messages are counted.
    watch: OnceLock<TopicWatch>,
    /// Clients that wait for the copies of their own messages.
    pub(super) copies: OwnCopies,
    /// Receivers of the number of messages.
    passive: ChannelGroup<Reply>,
    members: Mutex<Members>,
    /// Shows the members of this server to others.
    pub(super) shared: MemberMap,
    /// Number of all messages to the room.
    total: AtomicU64,
    /// Whether the number of messages has changed since it was announced.
    total_changed: AtomicBool,
    /// Number of members whose queued bytes exceed their high water mark.
    congested: AtomicUsize,
}

impl Room {
    /// Opens an empty room. `number` differs from those of all other rooms.
    ///
    /// # Errors
    /// Fails if there are too many topics.
    pub(crate) fn open(name: &str, number: u64, topics: &Topics, hub: &Arc<Hub>) -> Result<Arc<Self>> {
        let name = Arc::<str>::from(name);
        let format = RoomFormat::new(name.clone(), hub);
        let on_event = on_event(name.clone(), Arc::downgrade(hub));
        let topic =
            topics.topic(topic_name(MESSAGES, &name), format).history(HISTORY).on_event(on_event).open()?;
        Ok(Arc::new(Room {
            name,
            number,
            topic,
            watch: OnceLock::new(),
            copies: OwnCopies::default(),
            passive: ChannelGroup::new(),
            members: Mutex::default(),
            shared: MemberMap::default(),
            total: AtomicU64::new(0),
            total_changed: AtomicBool::new(false),
            congested: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    // ---- members --------------------------------------------------------------------------------

    /// Returns the number of members of this server.
    pub(crate) fn local_members(&self) -> usize {
        lock(&self.members).here()
    }

    /// Returns whether a user is a member by a session of this server.
    pub(super) fn has_local(&self, user: &str) -> bool {
        lock(&self.members).is_here(user)
    }

    /// Returns whether a user is a member by a session of another server.
    pub(super) fn has_elsewhere(&self, user: &str) -> bool {
        lock(&self.members).is_elsewhere(user)
    }

    /// Returns the number of members that receive messages.
    pub(crate) fn active_members(&self) -> usize {
        self.topic.members().len()
    }

    /// Returns the number of members that receive the number of messages.
    pub(crate) fn passive_members(&self) -> usize {
        self.passive.len()
    }

    /// Returns the members' names in alphabetical order.
    pub(crate) fn users(&self) -> Vec<String> {
        lock(&self.members).names()
    }

    /// Adds a member. Returns `None` if there are already `max` members, otherwise whether to add
    /// the room to the announcer.
    pub(crate) fn join(&self, user: &Arc<str>, session: HandlerRef<Session>, max: usize) -> Option<bool> {
        lock(&self.members).join(user, session, max)
    }

    /// Records that a member has got its `joined`.
    pub(super) fn note_joined(&self, user: &str, who: ChannelId) {
        lock(&self.members).note_joined(user, who);
    }

    /// Removes a member. Returns whether to add the room to the announcer.
    pub(crate) fn leave(&self, user: &Arc<str>, who: ChannelId) -> bool {
        self.topic.leave(who);
        // A channel that has closed has already left its group.
        self.passive.leave(who);
        lock(&self.members).leave(user, who)
    }

    /// Records whether a user is a member by a session of another server. Returns whether to add
    /// the room to the announcer.
    pub(super) fn note_elsewhere(&self, user: &str, is_elsewhere: bool) -> bool {
        lock(&self.members).note_elsewhere(user, is_elsewhere)
    }

    /// Adds users that are members by sessions of other servers, and need not be announced.
    pub(super) fn load_elsewhere(&self, load: impl FnOnce() -> Vec<String>) {
        // Loaded under the lock: otherwise a newer change could be overwritten.
        let mut members = lock(&self.members);
        members.add_elsewhere(load());
    }

    /// Begins to write the messages of the room to a member: first what `greeting` returns, then
    /// the missed messages, then all others.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        channel: Channel<Reply>,
        start: Start,
        greeting: impl FnOnce(&Room, &Joined) -> Reply + Send + 'static,
    ) -> Completion<Joined> {
        self.passive.leave(channel.id());
        let subscription = match start {
            Start::Last(messages) => Subscription::new(channel).last(messages),
            Start::After(position) => Subscription::new(channel).after(position),
            Start::Unknown => Subscription::new(channel),
        };
        let me = self.clone();
        self.topic.subscribe(subscription.greeting(move |joined| Some(greeting(&me, joined))))
    }

    /// Returns the reply to a `join`.
    pub(crate) fn joined(&self, user: &str, at: Option<Position>, recovered: Option<bool>) -> Reply {
        Reply::Joined {
            room: self.name.to_string(),
            user: user.to_owned(),
            epoch: at.map(|at| at.epoch),
            offset: at.map(|at| at.offset),
            recovered,
        }
    }

    /// Makes a member passive. Returns the reply, and whether to add the room to the announcer.
    ///
    /// A message that is sent at the same time may be received and counted, but is never left out.
    /// So the number is read while the member still receives messages.
    pub(crate) fn become_passive(&self, channel: Channel<Reply>) -> (Reply, bool) {
        let who = channel.id();
        self.watch.get_or_init(|| self.topic.watch());
        let total = self.total.load(Ordering::SeqCst);
        self.topic.leave(who);
        self.passive.join(channel);
        let has_missed = self.total.load(Ordering::SeqCst) != total;
        let reply = Reply::Passive { room: self.name.to_string(), total };
        (reply, has_missed && self.note_total())
    }

    /// Returns the reply to an `active`.
    pub(crate) fn active(&self, at: Option<Position>) -> Reply {
        let (epoch, offset) = (at.map(|at| at.epoch), at.map(|at| at.offset));
        let total = self.total.load(Ordering::SeqCst);
        Reply::Active { room: self.name.to_string(), total, epoch, offset }
    }

    // ---- messages -------------------------------------------------------------------------------

    /// Stores a message, and delivers it. A repetition has the same `unique` id.
    pub(crate) fn publish(
        &self,
        from: &str,
        text: String,
        ts: u64,
        sender_id: Option<MessageId>,
        unique: Option<broker::MessageId>,
    ) -> Completion<Receipt> {
        let (room, from) = (String::new(), from.to_owned());
        let message = NewMessage::new(Reply::Message {
            room,
            from,
            text,
            ts,
            epoch: None,
            offset: None,
            id: None,
            sender_id,
            is_local: true,
        });
        self.topic.publish(match unique {
            Some(unique) => message.id(unique),
            None => message,
        })
    }

    /// Writes a message to the members of this server, in the order of the offsets.
    ///
    /// The message is encoded once. The sender's copy has the sender's `id`. Members that do not
    /// keep up are handled on their own loops, by the overflow policy of their channels.
    #[allow(clippy::result_large_err, reason = "the error returns the message")]
    pub(super) fn deliver(
        self: &Arc<Self>,
        hub: &Hub,
        message: Reply,
        at: Position,
        members: &ChannelGroup<Reply>,
    ) -> Result<Broadcast, SendError<Reply>> {
        let own = self.own_copy(&message, members);
        let sent = match &own {
            Some((_, sender, _)) => members.broadcast_except(sender.id(), message)?,
            None => members.broadcast(message)?,
        };
        let unreached = sent.unreached();
        hub.counters.count_message(sent.members() - unreached + usize::from(own.is_some()), unreached);
        if let Some((user, sender, copy)) = own {
            hub::send(&user, &sender, copy);
        }
        self.copies.delivered(at);
        if self.count_message() {
            hub.rooms.announcer.add(self.clone());
        }
        Ok(sent)
    }

    /// Returns the sender of a message with its channel and its own copy, if the copy differs from
    /// that of the others, or if the sender is passive.
    ///
    /// The message may be of an earlier session or membership of the user. The present session gets
    /// no copy of its own before its `joined`.
    fn own_copy(
        &self,
        message: &Reply,
        members: &ChannelGroup<Reply>,
    ) -> Option<(Arc<str>, Channel<Reply>, Reply)> {
        let Reply::Message { from, sender_id, is_local, .. } = message else { return None };
        if !is_local || sender_id.is_none() && self.passive.is_empty() {
            return None;
        }
        let known = lock(&self.members);
        let (user, session) = known.joined_as(from)?;
        let (user, sender) = (user.clone(), session.channel().clone());
        drop(known);
        if sender_id.is_none() && members.contains(sender.id()) {
            return None;
        }
        let mut own = message.clone();
        if let Reply::Message { id, sender_id, .. } = &mut own {
            *id = sender_id.take();
        }
        Some((user, sender, own))
    }

    /// Returns the reply to a message that was stored before.
    pub(crate) fn said(&self, at: Position, id: Option<MessageId>) -> Option<Reply> {
        let Position { epoch, offset, .. } = at;
        Some(Reply::Said { room: self.name.to_string(), epoch, offset, id: id? })
    }

    /// Announces changes: joins and leaves to the active members, and the number of messages to the
    /// passive ones. Returns the cost in deliveries, or `None` if there was nothing to announce and
    /// the room has left the announcer's list.
    ///
    /// A refused announcement is not lost: it is repeated the next time.
    pub(crate) fn announce(&self) -> Option<usize> {
        // Broadcast under the lock: otherwise a later announcement could overtake this one.
        let mut members = lock(&self.members);
        let news = members.next_news().map(|news| self.announce_members(&mut members, news));
        let total = self.announce_total();
        if news.is_none() && total.is_none() {
            members.unlist();
            return None;
        }
        Some(news.unwrap_or(0) + total.unwrap_or(0))
    }

    fn announce_members(&self, members: &mut Members, news: News) -> usize {
        let (room, here) = (self.name.to_string(), members.here());
        let (sent, cost) = match &news {
            News::Count(count) => {
                let (joined, left, count) = (Vec::new(), Vec::new(), Some(*count));
                let presence = Reply::Presence { room, joined, left, count };
                (self.topic.members().broadcast_latest(self.number << 1, presence), here)
            }
            News::Names(changed) => {
                let names = |member: bool| -> Vec<String> {
                    let changed = changed.iter().filter(|change| *change.1 == member);
                    changed.map(|change| change.0.to_string()).collect()
                };
                let (joined, left) = (names(true), names(false));
                let presence = Reply::Presence { room, joined, left, count: None };
                let cost = deliveries(here, changed.keys().map(|user| user.len() + 3).sum());
                (self.topic.members().broadcast(presence), cost)
            }
        };
        if !sent.is_ok_and(|sent| sent.unreached() == 0) {
            members.put_back(news);
        }
        cost
    }

    fn announce_total(&self) -> Option<usize> {
        if !self.total_changed.swap(false, Ordering::SeqCst) {
            return None;
        }
        let unread = Reply::Unread { room: self.name.to_string(), total: self.total.load(Ordering::SeqCst) };
        let told = self.passive.broadcast_latest(self.number << 1 | 1, unread);
        let cost = told.as_ref().map_or(1, |told| told.members());
        if !told.is_ok_and(|told| told.unreached() == 0) {
            self.total_changed.store(true, Ordering::SeqCst);
        }
        Some(cost)
    }

    /// Counts a message that was sent. Returns whether to add the room to the announcer.
    pub(crate) fn count_message(&self) -> bool {
        self.total.fetch_add(1, Ordering::SeqCst);
        !self.passive.is_empty() && self.note_total()
    }

    /// Records that the number of messages has to be announced. Returns whether to add the room to
    /// the announcer.
    fn note_total(&self) -> bool {
        !self.total_changed.swap(true, Ordering::SeqCst) && lock(&self.members).list()
    }

    /// Records that the queued bytes of a member have risen above its high water mark, or have
    /// fallen again.
    pub(crate) fn set_congested(&self, congested: bool) {
        if congested {
            self.congested.fetch_add(1, Ordering::Relaxed);
        } else {
            self.congested.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether a member currently does not keep up.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed) > 0
    }
}

/// Returns the cost of a message to `members`: one delivery each, and one more for each KiB of
/// text.
pub(crate) fn deliveries(members: usize, text: usize) -> usize {
    members.saturating_mul(1 + text / 1024)
}
