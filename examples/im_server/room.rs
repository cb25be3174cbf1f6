//! A room: its members, and the joins and leaves that have yet to be announced.
//!
//! Always holds: a user whose membership changed is in `changed` until an announcement with its
//! present state was accepted by the members' loops. So the members' lists converge, even when
//! announcements are refused for a while.

use crate::{hub::lock, protocol::Reply};
use netwheel::{Channel, ChannelGroup, ChannelId, Error};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Names in one announcement at most; the others come with the next one.
const MAX_NAMES: usize = 256;

pub(crate) struct Room {
    name: Arc<str>,
    /// Receivers of messages to the room.
    members: ChannelGroup<Reply>,
    users: Mutex<Users>,
    /// Members that have more waiting for them than their high water mark.
    congested: AtomicUsize,
}

#[derive(Default)]
struct Users {
    /// Names of the members.
    names: HashMap<ChannelId, Arc<str>>,
    /// Users that have joined or left since the last announcement, and whether they are members
    /// now.
    changed: BTreeMap<Arc<str>, bool>,
    /// The announcer has this room in its list.
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

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        lock(&self.users).names.len()
    }

    /// The members' names in alphabetical order.
    pub(crate) fn users(&self) -> Vec<String> {
        let mut users: Vec<String> = lock(&self.users).names.values().map(|user| user.to_string()).collect();
        users.sort_unstable();
        users
    }

    /// Adds a member; returns `None` if there are `max` of them, else whether to add the room to
    /// the announcer.
    pub(crate) fn join(&self, user: &Arc<str>, channel: Channel<Reply>, max: usize) -> Option<bool> {
        let mut users = lock(&self.users);
        if users.names.len() >= max {
            return None;
        }
        users.names.insert(channel.id(), user.clone());
        self.members.join(channel);
        Some(users.note_change(user, true))
    }

    /// Removes a member; returns whether to add the room to the announcer.
    pub(crate) fn leave(&self, user: &Arc<str>, who: ChannelId) -> bool {
        let mut users = lock(&self.users);
        users.names.remove(&who);
        // A channel that has closed has left the group by itself.
        self.members.leave(who);
        users.note_change(user, false)
    }

    /// Announces joins and leaves; returns the cost in deliveries, or `None` if nothing was left to
    /// announce and the room has left the announcer's list.
    ///
    /// An announcement that is refused is not lost: it is made again the next time.
    pub(crate) fn announce(&self) -> Option<usize> {
        let mut users = lock(&self.users);
        if users.names.is_empty() {
            // An empty room has left the hub, and has no members to announce to.
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
        // Under the lock: otherwise a later announcement could overtake this one.
        let told = self.members.broadcast(presence);
        if !told.is_ok_and(|told| told.unreached() == 0) {
            users.changed.extend(changed);
        }
        Some(cost)
    }

    /// Writes `message` to every member but one; to how many.
    ///
    /// All that one session sends is submitted by its own thread, one message after the other, and
    /// every loop takes its submissions in order: so each member sees a sender's messages as they
    /// were sent. It is encoded once. Members that do not keep up are dealt with on their own
    /// loops, by the policy of their channels.
    pub(crate) fn send_to_others(&self, but: ChannelId, message: Reply) -> Result<Sent, Error> {
        let broadcast = self.members.broadcast_except(but, message)?;
        Ok(Sent { members: broadcast.members() - broadcast.unreached(), unreached: broadcast.unreached() })
    }

    /// Notes that a member has more waiting for it than its high water mark, or no longer has.
    pub(crate) fn set_congested(&self, congested: bool) {
        if congested {
            self.congested.fetch_add(1, Ordering::Relaxed);
        } else {
            self.congested.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a member does not keep up at the moment.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed) > 0
    }
}

impl Users {
    /// Notes that the membership of `user` has changed; returns whether the announcer does not know
    /// this room.
    fn note_change(&mut self, user: &Arc<str>, member: bool) -> bool {
        self.changed.insert(user.clone(), member);
        !std::mem::replace(&mut self.listed, true)
    }
}

/// To how many a message was written.
pub(crate) struct Sent {
    pub(crate) members: usize,
    /// Members that miss it, because their loops take no more.
    pub(crate) unreached: usize,
}

/// What a message to `members` costs: one for each of them, and another one for each KiB of text.
pub(crate) fn deliveries(members: usize, text: usize) -> usize {
    members.saturating_mul(1 + text / 1024)
}
