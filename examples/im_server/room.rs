//! A room: its members, and the joins and leaves that have not been announced yet.
//!
//! Invariant: a user whose membership has changed stays in `changed` until the members' loops have
//! accepted an announcement with the user's current state. The members' lists therefore converge,
//! even if announcements are refused for a while.

use crate::{hub::lock, protocol::Reply};
use netwheel::{Channel, ChannelGroup, ChannelId, Error, channel::Broadcast};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Maximum number of names in one announcement; the others are sent with the next one.
const MAX_NAMES: usize = 256;

pub(crate) struct Room {
    name: Arc<str>,
    /// Receivers of messages to the room.
    members: ChannelGroup<Reply>,
    users: Mutex<Users>,
    /// Number of members whose queued bytes exceed their high water mark.
    congested: AtomicUsize,
}

#[derive(Default)]
struct Users {
    /// Names of the members.
    names: BTreeMap<ChannelId, Arc<str>>,
    /// Users that have joined or left since the last announcement, with their current membership.
    changed: BTreeMap<Arc<str>, bool>,
    /// Set while the announcer has this room in its list.
    listed: bool,
}

impl Room {
    pub(crate) fn new(name: &str) -> Self {
        let (members, users) = (ChannelGroup::new(), Mutex::default());
        Room { name: name.into(), members, users, congested: AtomicUsize::new(0) }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the number of members.
    pub(crate) fn len(&self) -> usize {
        lock(&self.users).names.len()
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
        self.members.join(channel);
        Some(users.note_change(user, true))
    }

    /// Removes a member. Returns whether to add the room to the announcer.
    pub(crate) fn leave(&self, user: &Arc<str>, who: ChannelId) -> bool {
        let mut users = lock(&self.users);
        users.names.remove(&who);
        // A channel that has closed has already left the group.
        self.members.leave(who);
        users.note_change(user, false)
    }

    /// Announces joins and leaves. Returns the cost in deliveries, or `None` if there was nothing
    /// to announce and the room has left the announcer's list.
    ///
    /// A refused announcement is not lost: it is repeated the next time.
    pub(crate) fn announce(&self) -> Option<usize> {
        let mut users = lock(&self.users);
        if users.names.is_empty() {
            // An empty room has left the hub and has no members to notify.
            users.changed.clear();
        }
        if users.changed.is_empty() {
            users.listed = false;
            return None;
        }
        let rest = users.changed.keys().nth(MAX_NAMES).cloned();
        let rest = rest.map_or_else(BTreeMap::new, |first| users.changed.split_off(&first));
        let changed = std::mem::replace(&mut users.changed, rest);
        let names = |member: bool| -> Vec<String> {
            changed.iter().filter(|change| *change.1 == member).map(|change| change.0.to_string()).collect()
        };
        let presence =
            Reply::Presence { room: self.name.to_string(), joined: names(true), left: names(false) };
        let cost = deliveries(users.names.len(), changed.keys().map(|user| user.len() + 3).sum());
        // Broadcast under the lock: otherwise a later announcement could overtake this one.
        let told = self.members.broadcast(presence);
        if !told.is_ok_and(|told| told.unreached() == 0) {
            users.changed.extend(changed);
        }
        Some(cost)
    }

    /// Writes `message` to every member except `but`, and returns the number of members.
    ///
    /// A session submits its messages on its own thread one after the other, and every loop takes
    /// submissions in order. Each member therefore sees the messages of a sender in the order in
    /// which they were sent. The message is encoded once. Members that do not keep up are handled
    /// on their own loops, by the overflow policy of their channels.
    pub(crate) fn send_to_others(&self, but: ChannelId, message: Reply) -> Result<Sent, Error> {
        let broadcast = self.members.broadcast_except(but, message)?;
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
    /// Records a change of membership. Returns whether the room has to be added to the announcer.
    fn note_change(&mut self, user: &Arc<str>, member: bool) -> bool {
        self.changed.insert(user.clone(), member);
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
