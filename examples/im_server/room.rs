//! A room: its members, and the changes that have not been announced to them yet.
//!
//! Active members receive messages, and announcements of joins and leaves. Passive members receive
//! the number of messages to the room instead, which is the same line for all of them. In a large
//! room the number of members is announced instead of names. Both numbers are conflated: a member
//! that reads slowly receives the newest one.
//!
//! Invariants: a user whose membership has changed stays in `changed` until the members' loops have
//! accepted an announcement with the user's current state. The members' lists therefore converge,
//! even if announcements are refused for a while. A message that a passive member does not receive
//! is in a number that it receives.

use crate::{hub::lock, protocol::Reply};
use netwheel::{Channel, ChannelGroup, ChannelId, Error, channel::Broadcast};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// Maximum number of names in one announcement; the others are sent with the next one.
const MAX_NAMES: usize = 256;

/// Number of members above which joins and leaves are announced as the number of members.
pub(crate) const MAX_NAMED_MEMBERS: usize = 1000;
/// Number of members at which such a room announces names again. Lower, so that a room does not
/// change its form with each join.
const NAMED_AGAIN: usize = MAX_NAMED_MEMBERS * 3 / 4;

pub(crate) struct Room {
    name: Arc<str>,
    /// Tells apart the numbers of different rooms that wait for a member.
    number: u64,
    /// Receivers of messages to the room.
    active: ChannelGroup<Reply>,
    /// Receivers of the number of messages.
    passive: ChannelGroup<Reply>,
    users: Mutex<Users>,
    /// Number of all messages to the room.
    total: AtomicU64,
    /// Whether the number of messages has changed since it was announced.
    total_changed: AtomicBool,
    /// Number of members whose queued bytes exceed their high water mark.
    congested: AtomicUsize,
}

#[derive(Default)]
struct Users {
    /// Names of the members.
    names: BTreeMap<ChannelId, Arc<str>>,
    /// Users that have joined or left since the last announcement, with their current membership.
    changed: BTreeMap<Arc<str>, bool>,
    /// Whether the room is so large that the number of members is announced.
    counts: bool,
    /// Whether that number has to be announced.
    count_changed: bool,
    /// Set while the announcer has this room in its list.
    listed: bool,
}

impl Room {
    /// Creates an empty room. `number` differs from those of all other rooms.
    pub(crate) fn new(name: &str, number: u64) -> Self {
        Room {
            name: name.into(),
            number,
            active: ChannelGroup::new(),
            passive: ChannelGroup::new(),
            users: Mutex::default(),
            total: AtomicU64::new(0),
            total_changed: AtomicBool::new(false),
            congested: AtomicUsize::new(0),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the number of members.
    pub(crate) fn len(&self) -> usize {
        lock(&self.users).names.len()
    }

    /// Returns the number of members that receive the number of messages.
    pub(crate) fn passive_members(&self) -> usize {
        self.passive.len()
    }

    /// Returns the members' names in alphabetical order.
    pub(crate) fn users(&self) -> Vec<String> {
        let mut users: Vec<String> = lock(&self.users).names.values().map(|user| user.to_string()).collect();
        users.sort_unstable();
        users
    }

    /// Adds a member. Returns `None` if there are already `max` members, otherwise whether to add
    /// the room to the announcer.
    pub(crate) fn join(&self, user: &Arc<str>, channel: Channel<Reply>, max: usize) -> Option<bool> {
        let mut users = lock(&self.users);
        if users.names.len() >= max {
            return None;
        }
        users.names.insert(channel.id(), user.clone());
        self.active.join(channel);
        Some(users.note_change(user, true))
    }

    /// Removes a member. Returns whether to add the room to the announcer.
    pub(crate) fn leave(&self, user: &Arc<str>, who: ChannelId) -> bool {
        let mut users = lock(&self.users);
        users.names.remove(&who);
        // A channel that has closed has already left its group.
        self.active.leave(who);
        self.passive.leave(who);
        users.note_change(user, false)
    }

    /// Makes a member passive or active. Returns the number of all messages, and whether to add the
    /// room to the announcer.
    ///
    /// A message that is sent at the same time may be received and counted, but is never left out.
    /// So the number is read while the member still receives messages.
    pub(crate) fn set_passive(&self, channel: Channel<Reply>, passive: bool) -> (u64, bool) {
        let who = channel.id();
        if !passive {
            self.active.join(channel);
            self.passive.leave(who);
            return (self.total.load(Ordering::SeqCst), false);
        }
        let total = self.total.load(Ordering::SeqCst);
        self.active.leave(who);
        self.passive.join(channel);
        let has_missed = self.total.load(Ordering::SeqCst) != total;
        (total, has_missed && self.note_total())
    }

    /// Announces changes: joins and leaves to the active members, and the number of messages to the
    /// passive ones. Returns the cost in deliveries, or `None` if there was nothing to announce and
    /// the room has left the announcer's list.
    ///
    /// A refused announcement is not lost: it is repeated the next time.
    pub(crate) fn announce(&self) -> Option<usize> {
        // Broadcast under the lock: otherwise a later announcement could overtake this one.
        let mut users = lock(&self.users);
        let members = self.announce_members(&mut users);
        let total = self.announce_total();
        if members.is_none() && total.is_none() {
            users.listed = false;
            return None;
        }
        Some(members.unwrap_or(0) + total.unwrap_or(0))
    }

    fn announce_members(&self, users: &mut Users) -> Option<usize> {
        users.choose_form();
        let counts = users.counts || users.count_changed;
        if counts { self.announce_count(users) } else { self.announce_names(users) }
    }

    fn announce_count(&self, users: &mut Users) -> Option<usize> {
        if !std::mem::take(&mut users.count_changed) {
            return None;
        }
        let (joined, left, count) = (Vec::new(), Vec::new(), Some(users.names.len()));
        let presence = Reply::Presence { room: self.name.to_string(), joined, left, count };
        let told = self.active.broadcast_latest(self.number << 1, presence);
        users.count_changed = !told.is_ok_and(|told| told.unreached() == 0);
        Some(users.names.len())
    }

    fn announce_names(&self, users: &mut Users) -> Option<usize> {
        if users.names.is_empty() {
            // An empty room has left the hub and has no members to notify.
            users.changed.clear();
        }
        if users.changed.is_empty() {
            return None;
        }
        let rest = users.changed.keys().nth(MAX_NAMES).cloned();
        let rest = rest.map_or_else(BTreeMap::new, |first| users.changed.split_off(&first));
        let changed = std::mem::replace(&mut users.changed, rest);
        let names = |member: bool| -> Vec<String> {
            changed.iter().filter(|change| *change.1 == member).map(|change| change.0.to_string()).collect()
        };
        let (joined, left) = (names(true), names(false));
        let presence = Reply::Presence { room: self.name.to_string(), joined, left, count: None };
        let cost = deliveries(users.names.len(), changed.keys().map(|user| user.len() + 3).sum());
        let told = self.active.broadcast(presence);
        if !told.is_ok_and(|told| told.unreached() == 0) {
            users.changed.extend(changed);
        }
        Some(cost)
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
        !self.total_changed.swap(true, Ordering::SeqCst)
            && !std::mem::replace(&mut lock(&self.users).listed, true)
    }

    /// Writes `message` to every active member except `but`, and returns their number.
    ///
    /// A session submits its messages on its own thread one after the other, and every loop takes
    /// submissions in order. Each member therefore sees the messages of a sender in the order in
    /// which they were sent. The message is encoded once. Members that do not keep up are handled
    /// on their own loops, by the overflow policy of their channels.
    pub(crate) fn send_to_others(&self, but: ChannelId, message: Reply) -> Result<Sent, Error> {
        let broadcast = self.active.broadcast_except(but, message)?;
        let unreached = broadcast.unreached();
        Ok(Sent { members: broadcast.members() - unreached, unreached, broadcast })
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

impl Users {
    /// Decides whether names or the number of members are announced.
    fn choose_form(&mut self) {
        if !self.counts && self.names.len() > MAX_NAMED_MEMBERS {
            (self.counts, self.count_changed) = (true, true);
            self.changed.clear();
        } else if self.counts && self.names.len() <= NAMED_AGAIN {
            // The last number, after which names follow.
            (self.counts, self.count_changed) = (false, true);
        }
    }

    /// Records a change of membership. Returns whether the room has to be added to the announcer.
    fn note_change(&mut self, user: &Arc<str>, member: bool) -> bool {
        if self.counts {
            self.count_changed = true;
        } else {
            self.changed.insert(user.clone(), member);
        }
        !std::mem::replace(&mut self.listed, true)
    }
}

/// Number of members to which a message was written.
pub(crate) struct Sent {
    pub(crate) members: usize,
    /// Members that missed it because their loops' queues were full.
    pub(crate) unreached: usize,
    pub(crate) broadcast: Broadcast,
}

/// Returns the cost of a message to `members`: one delivery each, and one more for each KiB of
/// text.
pub(crate) fn deliveries(members: usize, text: usize) -> usize {
    members.saturating_mul(1 + text / 1024)
}
