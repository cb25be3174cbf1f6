//! What all connections share: names in use, rooms, counters.
//!
//! Always holds: a name belongs to one connection at most; a room that is in the hub has a user. The locks
//! guard membership only: what is said in a room goes through its `ChannelGroup`, without any lock of ours. Where both
//! are held, the hub's lock is taken before the room's. Used by all loops.

use crate::{
    protocol::{Reason, Reply},
    session::{Session, unix_ms},
};
use netwheel::{Channel, ChannelGroup, ChannelId, Error, Remote};
use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Members of one room at most.
pub(crate) const MAX_MEMBERS: usize = 10_000;

#[derive(Default)]
pub(crate) struct Hub {
    users: Mutex<HashMap<Arc<str>, User>>,
    rooms: Mutex<HashMap<Arc<str>, Arc<Room>>>,
    pub(crate) counters: Counters,
}

/// Somebody who is logged in.
struct User {
    session: Remote<Session>,
    /// The time of day of the login, in milliseconds since 1970 (UTC).
    since: u64,
    rooms: BTreeSet<Arc<str>>,
}

/// What is known of a name.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// When its user logged in; none if nobody has that name now.
    pub(crate) since: Option<u64>,
    /// In alphabetical order.
    pub(crate) rooms: Vec<String>,
}

/// For the line that `--stats` prints.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    pub(crate) messages: AtomicU64,
    pub(crate) deliveries: AtomicU64,
}

pub(crate) struct Room {
    name: Arc<str>,
    /// Who is told what is said.
    members: ChannelGroup<Reply>,
    /// What they are called.
    users: Mutex<HashMap<ChannelId, Arc<str>>>,
}

/// The data behind our locks is whole at every moment, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Takes a name for a session; none if somebody has it.
    pub(crate) fn take_name(&self, name: &str, session: Remote<Session>) -> Option<Arc<str>> {
        let name: Arc<str> = name.into();
        match lock(&self.users).entry(name.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(free) => {
                free.insert(User { session, since: unix_ms(), rooms: BTreeSet::new() });
                Some(name)
            }
        }
    }

    /// The session of the user of that name, which may be about to end.
    pub(crate) fn find(&self, name: &str) -> Option<Remote<Session>> {
        lock(&self.users).get(name).map(|user| user.session.clone())
    }

    /// What is known of that name now.
    pub(crate) fn profile(&self, name: &str) -> Profile {
        match lock(&self.users).get(name) {
            Some(user) => Profile {
                since: Some(user.since),
                rooms: user.rooms.iter().map(|room| room.to_string()).collect(),
            },
            None => Profile::default(),
        }
    }

    pub(crate) fn release_name(&self, name: &str) {
        lock(&self.users).remove(name);
    }

    /// Makes `user` a member of a room, which is made if need be; none if the room is full.
    pub(crate) fn join(&self, room: &str, user: &Arc<str>, channel: Channel<Reply>) -> Option<Arc<Room>> {
        let mut rooms = lock(&self.rooms);
        let room = match rooms.get(room) {
            Some(room) => room.clone(),
            None => {
                let name: Arc<str> = room.into();
                let (members, users) = (ChannelGroup::new(), Mutex::default());
                let room = Arc::new(Room { name: name.clone(), members, users });
                rooms.insert(name, room.clone());
                room
            }
        };
        // Still under the hub's lock: otherwise the last user might leave now and take the room away.
        let mut users = lock(&room.users);
        if users.len() >= MAX_MEMBERS {
            return None;
        }
        users.insert(channel.id(), user.clone());
        drop(users);
        room.members.join(channel);
        drop(rooms);
        if let Some(user) = lock(&self.users).get_mut(user) {
            user.rooms.insert(room.name.clone());
        }
        Some(room)
    }

    /// Ends the membership of `user`, whose channel is `who`.
    pub(crate) fn leave(&self, room: &Room, user: &str, who: ChannelId) {
        if let Some(user) = lock(&self.users).get_mut(user) {
            user.rooms.remove(&room.name);
        }
        let mut rooms = lock(&self.rooms);
        let mut users = lock(&room.users);
        users.remove(&who);
        // A channel that has closed has left the group by itself.
        room.members.leave(who);
        if users.is_empty() {
            rooms.remove(&room.name);
        }
    }

    /// The names of those who are in a room; none are in a room that nobody has joined.
    pub(crate) fn who(&self, room: &str) -> Vec<String> {
        let Some(room) = lock(&self.rooms).get(room).cloned() else { return Vec::new() };
        let mut users: Vec<String> = lock(&room.users).values().map(|user| user.to_string()).collect();
        users.sort_unstable();
        users
    }
}

impl Room {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Writes `message` to every member but one; to how many.
    ///
    /// All that one session sends is submitted by its own thread, one message after the other, and every loop takes
    /// its submissions in order: so each member sees a sender's messages as they were sent. It is encoded once. Members that
    /// do not keep up are dealt with on their own loops, by the policy of their channels.
    pub(crate) fn send_to_others(&self, but: ChannelId, message: Reply) -> Result<usize, Error> {
        let broadcast = self.members.broadcast_except(but, message).map_err(|refused| refused.reason)?;
        if broadcast.unreached() > 0 {
            log::warn!(
                "{}: {} members miss a message: their loops take no more",
                self.name,
                broadcast.unreached()
            );
        }
        Ok(broadcast.members() - broadcast.unreached())
    }
}

/// Sends something to another session.
///
/// One that does not read as fast as it is written to has missed a message now: nobody can wait for it, so it goes.
/// One that is closed already is about to leave by itself.
pub(crate) fn send(user: &str, channel: &Channel<Reply>, message: Reply) {
    let Err(refused) = channel.write(message) else { return };
    if let Error::Full { .. } = refused.reason {
        log::info!("{user}: too slow ({}), closing", refused.reason);
        let goodbye = channel.execute(|scope| scope.close_with(Reply::Bye { reason: Reason::SlowConsumer }));
        if goodbye.is_err() {
            channel.close_now();
        }
    }
}

impl Counters {
    /// A message was said, and went to so many members.
    pub(crate) fn count_message(&self, deliveries: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.deliveries.fetch_add(deliveries as u64, Ordering::Relaxed);
    }
}
