//! The rooms: messages with a history, members, and announcements of joins and leaves.
//!
//! The messages of a room are a topic of a broker, so they have positions from which a client can
//! resume. Servers show their members to each other in a map.
//!
//! Invariants: a room in the table has at least one member of this server. The lock of the table is
//! not held while a map is called, because events of maps take it.

mod format;
mod listing;
mod member_map;
mod members;
mod own_copies;
mod presence;
mod requests;
mod room;
mod unshown;

pub(crate) use presence::PERIOD;
pub(crate) use requests::Membership;
pub(crate) use room::{Room, Start, deliveries};

use crate::{
    hub::{Hub, lock},
    protocol::Code,
    session::{Refusal, Session, busy},
};
use member_map::MemberMap;
use netwheel::{ChannelId, HandlerRef, broker::Topics};
use presence::Announcer;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use unshown::Unshown;

/// Maximum number of members of a room.
const MAX_MEMBERS: usize = 10_000;

pub(crate) struct Rooms {
    topics: Topics,
    by_name: Mutex<BTreeMap<Arc<str>, Arc<Room>>>,
    /// Number of the next room.
    next: AtomicU64,
    /// Rooms with joins and leaves that have not been announced.
    pub(crate) announcer: Announcer,
    /// Members whose entries in the maps of rooms may be wrong.
    unshown: Unshown,
    /// Held while an entry of such a map is set or removed, so that the last call is about the last
    /// change. One lock for all rooms: two rooms may have the same name, one after the other.
    show_order: Mutex<()>,
}

impl Rooms {
    pub(crate) fn new(topics: Topics) -> Self {
        Rooms {
            topics,
            by_name: Mutex::default(),
            next: AtomicU64::new(0),
            announcer: Announcer::default(),
            unshown: Unshown::default(),
            show_order: Mutex::default(),
        }
    }

    /// Makes `user` a member of a room, and creates the room if necessary.
    ///
    /// # Errors
    /// Fails if the room is full, or if there are too many rooms.
    pub(crate) fn join(
        &self,
        room: &str,
        user: &Arc<str>,
        session: HandlerRef<Session>,
        hub: &Arc<Hub>,
    ) -> Result<Arc<Room>, Refusal> {
        let mut rooms = lock(&self.by_name);
        let room = match rooms.get(room) {
            Some(room) => room.clone(),
            None => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let room = Room::open(room, number, &self.topics, hub).map_err(|error| busy(&error))?;
                rooms.insert(room.name().clone(), room.clone());
                room
            }
        };
        // Keep the lock: otherwise the last user could leave now, which would remove the room.
        let Some(news) = room.join(user, session, MAX_MEMBERS) else {
            return Err(Refusal(Code::BadRequest, format!("{} is full", room.name())));
        };
        drop(rooms);
        if news {
            self.announcer.add(room.clone());
        }
        MemberMap::show(&room, user, hub);
        Ok(room)
    }

    /// Ends the membership of `user`, whose channel id is `who`.
    pub(crate) fn leave(&self, room: &Arc<Room>, user: &Arc<str>, who: ChannelId, hub: &Arc<Hub>) {
        let mut rooms = lock(&self.by_name);
        let news = room.leave(user, who);
        let is_empty = room.local_members() == 0;
        if is_empty && rooms.get(room.name()).is_some_and(|known| Arc::ptr_eq(known, room)) {
            rooms.remove(room.name());
        }
        drop(rooms);
        if news {
            self.announcer.add(room.clone());
        }
        MemberMap::show(room, user, hub);
    }

    /// Shows members to other servers again, or removes them there, after an attempt has failed.
    /// Called periodically.
    pub(crate) fn tick(&self, now: Instant, hub: &Arc<Hub>) {
        for (room, user) in self.unshown.take(now) {
            // Without members here, the map is closed, which removes its entries.
            if let Some(room) = self.find(&room) {
                MemberMap::show(&room, &user, hub);
            }
        }
    }

    /// Returns the rooms with members of this server in which a user of another server is, too.
    pub(crate) fn of_user_elsewhere(&self, user: &str) -> Vec<String> {
        let rooms: Vec<_> = lock(&self.by_name).values().cloned().collect();
        let rooms = rooms.iter().filter(|room| room.has_elsewhere(user));
        rooms.map(|room| room.name().to_string()).collect()
    }

    /// Returns the number of passive members of all rooms.
    pub(crate) fn passive_members(&self) -> usize {
        lock(&self.by_name).values().map(|room| room.passive_members()).sum()
    }

    /// Returns the room of this name, if it has members.
    pub(crate) fn find(&self, room: &str) -> Option<Arc<Room>> {
        lock(&self.by_name).get(room).cloned()
    }
}
