//! The rooms: messages with a history, members, and announcements of joins and leaves.
//!
//! The messages of a room are a topic of a broker, so they have positions from which a client can
//! resume. The members of a room are those of this server.
//!
//! Invariant: a room in the table has at least one user.

mod format;
mod own_copies;
mod presence;
mod requests;
mod room;

pub(crate) use presence::PERIOD;
pub(crate) use requests::Membership;
pub(crate) use room::{Room, Start, deliveries};

use crate::{
    hub::{Hub, lock},
    protocol::Code,
    session::{Refusal, Session, busy},
};
use netwheel::{ChannelId, HandlerRef, broker::Topics};
use presence::Announcer;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum number of members of a room.
const MAX_MEMBERS: usize = 10_000;

pub(crate) struct Rooms {
    topics: Topics,
    by_name: Mutex<BTreeMap<Arc<str>, Arc<Room>>>,
    /// Number of the next room.
    next: AtomicU64,
    /// Rooms with joins and leaves that have not been announced.
    pub(crate) announcer: Announcer,
}

impl Rooms {
    pub(crate) fn new(topics: Topics) -> Self {
        Rooms { topics, by_name: Mutex::default(), next: AtomicU64::new(0), announcer: Announcer::default() }
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
        Ok(room)
    }

    /// Ends the membership of `user`, whose channel id is `who`.
    pub(crate) fn leave(&self, room: &Arc<Room>, user: &Arc<str>, who: ChannelId) {
        let mut rooms = lock(&self.by_name);
        let news = room.leave(user, who);
        if room.len() == 0 {
            rooms.remove(room.name());
        }
        drop(rooms);
        if news {
            self.announcer.add(room.clone());
        }
    }

    /// Returns the number of passive members of all rooms.
    pub(crate) fn passive_members(&self) -> usize {
        lock(&self.by_name).values().map(|room| room.passive_members()).sum()
    }

    /// Returns the room of this name, if it has members.
    fn find(&self, room: &str) -> Option<Arc<Room>> {
        lock(&self.by_name).get(room).cloned()
    }

    /// Returns the names of a room's members; empty if the room does not exist.
    pub(crate) fn who(&self, room: &str) -> Vec<String> {
        let room = self.find(room);
        room.map_or_else(Vec::new, |room| room.users())
    }
}
