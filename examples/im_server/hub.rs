//! What all connections share: names in use, rooms, counters.
//!
//! Always holds: a name belongs to one connection at most, and so does every name that looks like
//! it; a room that is in the hub has a user. The locks guard membership only: what is said in a
//! room goes through its `ChannelGroup`, without any lock of ours. Where both are held, the hub's
//! lock is taken before the room's. Used by all loops.

use crate::{
    byte_budget::ByteBudget,
    name,
    presence::Announcer,
    protocol::{Reason, Reply},
    room::Room,
    session::{Session, unix_ms},
};
use netwheel::{Channel, ChannelId, Error, Remote};
use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Members of one room at most.
pub(crate) const MAX_MEMBERS: usize = 10_000;
/// Bytes of direct messages that wait for their acknowledgement, of all clients, unless set
/// otherwise.
pub(crate) const MAX_UNACKED_BYTES: usize = 64 * 1024 * 1024;

pub(crate) struct Hub {
    users: Mutex<Users>,
    rooms: Mutex<HashMap<Arc<str>, Arc<Room>>>,
    /// Rooms with joins and leaves to announce.
    pub(crate) announcer: Announcer,
    /// Direct messages of all clients that wait for their acknowledgement.
    pub(crate) unacked_bytes: Arc<ByteBudget>,
    pub(crate) counters: Counters,
}

#[derive(Default)]
struct Users {
    by_name: HashMap<Arc<str>, User>,
    /// What the names look like.
    looks: HashMap<String, Arc<str>>,
}

impl Default for Hub {
    fn default() -> Self {
        Hub::new(MAX_UNACKED_BYTES)
    }
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
    /// Deliveries that were not made, because a loop's queue was full.
    pub(crate) unreached: AtomicU64,
}

/// The data behind our locks is whole at every moment, so a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Returns a hub in which direct messages of `max_unacked_bytes` may wait for their
    /// acknowledgement.
    pub(crate) fn new(max_unacked_bytes: usize) -> Self {
        Hub {
            users: Mutex::default(),
            rooms: Mutex::default(),
            announcer: Announcer::default(),
            unacked_bytes: ByteBudget::new(max_unacked_bytes),
            counters: Counters::default(),
        }
    }

    /// Takes a name for a session.
    ///
    /// # Errors
    /// The name that is taken: the same one, or one that looks like it.
    pub(crate) fn take_name(&self, name: &str, session: Remote<Session>) -> Result<Arc<str>, Arc<str>> {
        let looks = name::looks(name);
        let name: Arc<str> = name.into();
        let mut users = lock(&self.users);
        match users.looks.entry(looks) {
            Entry::Occupied(taken) => return Err(taken.get().clone()),
            Entry::Vacant(free) => drop(free.insert(name.clone())),
        }
        users.by_name.insert(name.clone(), User { session, since: unix_ms(), rooms: BTreeSet::new() });
        Ok(name)
    }

    /// The session of the user of that name, which may be about to end.
    pub(crate) fn find(&self, name: &str) -> Option<Remote<Session>> {
        lock(&self.users).by_name.get(name).map(|user| user.session.clone())
    }

    /// What is known of that name now.
    pub(crate) fn profile(&self, name: &str) -> Profile {
        match lock(&self.users).by_name.get(name) {
            Some(user) => Profile {
                since: Some(user.since),
                rooms: user.rooms.iter().map(|room| room.to_string()).collect(),
            },
            None => Profile::default(),
        }
    }

    pub(crate) fn release_name(&self, name: &str) {
        let looks = name::looks(name);
        let mut users = lock(&self.users);
        users.by_name.remove(name);
        users.looks.remove(&looks);
    }

    /// Makes `user` a member of a room, which is made if need be; none if the room is full.
    pub(crate) fn join(&self, room: &str, user: &Arc<str>, channel: Channel<Reply>) -> Option<Arc<Room>> {
        let mut rooms = lock(&self.rooms);
        let room = match rooms.get(room) {
            Some(room) => room.clone(),
            None => {
                let room = Arc::new(Room::new(room));
                rooms.insert(room.name().clone(), room.clone());
                room
            }
        };
        // Still under the hub's lock: otherwise the last user might leave now and take the room away.
        let news = room.join(user, channel, MAX_MEMBERS)?;
        drop(rooms);
        if news {
            self.announcer.add(room.clone());
        }
        if let Some(user) = lock(&self.users).by_name.get_mut(user) {
            user.rooms.insert(room.name().clone());
        }
        Some(room)
    }

    /// Ends the membership of `user`, whose channel is `who`.
    pub(crate) fn leave(&self, room: &Arc<Room>, user: &Arc<str>, who: ChannelId) {
        if let Some(user) = lock(&self.users).by_name.get_mut(user) {
            user.rooms.remove(room.name());
        }
        let mut rooms = lock(&self.rooms);
        let news = room.leave(user, who);
        if room.len() == 0 {
            rooms.remove(room.name());
        }
        drop(rooms);
        if news {
            self.announcer.add(room.clone());
        }
    }

    /// The names of those who are in a room; none are in a room that nobody has joined.
    pub(crate) fn who(&self, room: &str) -> Vec<String> {
        let room = lock(&self.rooms).get(room).cloned();
        room.map_or_else(Vec::new, |room| room.users())
    }
}

/// Sends something to another session.
///
/// One that does not read as fast as it is written to has missed a message now: nobody can wait for it, so it goes.
/// One that is closed already is about to leave by itself.
pub(crate) fn send(user: &str, channel: &Channel<Reply>, message: Reply) {
    let Err(refused) = channel.write(message) else { return };
    if let Error::Full { .. } = refused.error() {
        log::info!("{user}: too slow ({}), closing", refused.error());
        let goodbye = channel.execute(|scope| scope.close_with(Reply::Bye { reason: Reason::SlowConsumer }));
        if goodbye.is_err() {
            channel.close_now();
        }
    }
}

impl Counters {
    /// Counts a message and its deliveries; `unreached` members miss it, because their loops'
    /// queues are full.
    pub(crate) fn count_message(&self, deliveries: usize, unreached: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.unreached.fetch_add(unreached as u64, Ordering::Relaxed);
        self.deliveries.fetch_add(deliveries as u64, Ordering::Relaxed);
    }
}
