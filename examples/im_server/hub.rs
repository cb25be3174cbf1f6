//! What all connections share: names in use, rooms, counters.
//!
//! Always holds: a name belongs to one connection at most; a room that is in the hub has a member. The locks
//! guard membership only: a broadcast takes a snapshot of the members and writes without any lock. Where both
//! are held, the hub's lock is taken before the room's. Used by all loops.

use crate::{session::Session, wire::Outgoing};
use netwheel::{Channel, ChannelId, Error, Remote};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Members of one room at most.
pub(crate) const MAX_MEMBERS: usize = 10_000;

#[derive(Default)]
pub(crate) struct Hub {
    users: Mutex<HashMap<Arc<str>, Remote<Session>>>,
    rooms: Mutex<HashMap<Arc<str>, Arc<Room>>>,
    pub(crate) counters: Counters,
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
    /// Behind an `Arc`, so that a snapshot is one reference; copied only if it changes while one is in use.
    members: Mutex<Members>,
}

type Members = Arc<Vec<Member>>;

#[derive(Clone)]
struct Member {
    user: Arc<str>,
    channel: Channel<Outgoing>,
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
                free.insert(session);
                Some(name)
            }
        }
    }

    /// The session of the user of that name, which may be about to end.
    pub(crate) fn find(&self, name: &str) -> Option<Remote<Session>> {
        lock(&self.users).get(name).cloned()
    }

    pub(crate) fn release_name(&self, name: &str) {
        lock(&self.users).remove(name);
    }

    /// Makes `user` a member of a room, which is made if need be; none if the room is full.
    pub(crate) fn join(&self, room: &str, user: &Arc<str>, channel: &Channel<Outgoing>) -> Option<Arc<Room>> {
        let mut rooms = lock(&self.rooms);
        let room = match rooms.get(room) {
            Some(room) => room.clone(),
            None => {
                let name: Arc<str> = room.into();
                let room = Arc::new(Room { name: name.clone(), members: Mutex::default() });
                rooms.insert(name, room.clone());
                room
            }
        };
        // Still under the hub's lock: otherwise the last member might leave now and take the room away.
        let mut members = lock(&room.members);
        if members.len() >= MAX_MEMBERS {
            return None;
        }
        Arc::make_mut(&mut members).push(Member { user: user.clone(), channel: channel.clone() });
        drop(members);
        Some(room)
    }

    pub(crate) fn leave(&self, room: &Room, who: ChannelId) {
        let mut rooms = lock(&self.rooms);
        let mut members = lock(&room.members);
        if let Some(at) = members.iter().position(|member| member.channel.id() == who) {
            Arc::make_mut(&mut members).swap_remove(at);
        }
        if members.is_empty() {
            rooms.remove(&room.name);
        }
    }

    /// The names of those who are in a room; none are in a room that nobody has joined.
    pub(crate) fn who(&self, room: &str) -> Vec<String> {
        let room = lock(&self.rooms).get(room).cloned();
        let members = room.map(|room| room.snapshot()).unwrap_or_default();
        let mut users: Vec<String> = members.iter().map(|member| member.user.to_string()).collect();
        users.sort_unstable();
        users
    }

    /// Writes `message` to every member of `room` but one; to how many.
    ///
    /// All that one session sends is submitted by its own thread, one message after the other, and every loop takes
    /// its submissions in order: so each member sees a sender's messages as they were sent.
    pub(crate) fn send_to_others(&self, room: &Room, but: ChannelId, message: &Outgoing) -> usize {
        let members = room.snapshot();
        let others = members.iter().filter(|member| member.channel.id() != but);
        others.filter(|member| member.send(message)).count()
    }
}

impl Room {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn snapshot(&self) -> Members {
        lock(&self.members).clone()
    }
}

impl Member {
    fn send(&self, message: &Outgoing) -> bool {
        send(&self.user, &self.channel, message.clone())
    }
}

/// Sends something to another session; whether that is on its way.
///
/// One that does not read as fast as it is written to has missed a message now: nobody can wait for it, so it goes.
/// One that is closed already is about to leave by itself.
pub(crate) fn send(user: &str, channel: &Channel<Outgoing>, message: Outgoing) -> bool {
    let Err(refused) = channel.write(message) else { return true };
    if let Error::Full { .. } = refused.reason {
        log::info!("{user}: too slow ({}), closing", refused.reason);
        channel.close_now();
    }
    false
}

impl Counters {
    /// A message was said, and went to so many members.
    pub(crate) fn count_message(&self, deliveries: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.deliveries.fetch_add(deliveries as u64, Ordering::Relaxed);
    }
}
