//! `Room`: a topic of messages, and the members of this node.

use super::presence::Presence;
use crate::protocol::{GapCause, Reply};
use netwheel::{
    broker::{HistoryLimits, Missed, MissedCause, Position, Topic, TopicFormat, Topics},
    bytes::Bytes,
    prelude::*,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub(super) struct Rooms {
    topics: Topics,
    /// Name of the node.
    node: String,
    /// Messages of a room that are kept.
    history: u64,
    rooms: Mutex<BTreeMap<String, Arc<Room>>>,
}

pub(super) struct Room {
    pub(super) topic: Topic<Reply>,
    pub(super) presence: Arc<Presence>,
}

impl Rooms {
    pub(super) fn new(topics: Topics, node: String, history: u64) -> Arc<Self> {
        Arc::new(Rooms { topics, node, history, rooms: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Room>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a room, which stays open.
    ///
    /// # Errors
    /// If the name is not allowed, or there are too many topics.
    pub(super) fn open(&self, name: &str) -> Result<Arc<Room>> {
        let mut rooms = self.lock();
        if let Some(room) = rooms.get(name) {
            return Ok(room.clone());
        }
        let history = HistoryLimits::new().messages(self.history).age(Duration::from_secs(3600));
        let topic = self.topics.topic(name, RoomFormat(name.to_owned())).history(history).open()?;
        let presence = Presence::new(self.topics.clone(), name, self.node.clone())?;
        let room = Arc::new(Room { topic, presence });
        rooms.insert(name.to_owned(), room.clone());
        Ok(room)
    }

    /// Repairs the lists of members.
    pub(super) fn audit(&self) {
        let rooms: Vec<_> = self.lock().values().cloned().collect();
        rooms.iter().for_each(|room| room.presence.audit());
    }
}

/// Messages as JSON, with their positions.
struct RoomFormat(String);

impl TopicFormat<Reply> for RoomFormat {
    fn encode(&self, message: &Reply) -> Result<Bytes> {
        serde_json::to_vec(message).map(Bytes::from).map_err(Error::other)
    }

    fn decode(&self, payload: Bytes, position: Option<Position>) -> Result<Reply> {
        let mut message = serde_json::from_slice(&payload).map_err(Error::other)?;
        if let (Reply::Message { epoch, offset, .. }, Some(position)) = (&mut message, position) {
            (*epoch, *offset) = (Some(position.epoch), Some(position.offset));
        }
        Ok(message)
    }

    fn missed(&self, missed: &Missed) -> Option<Reply> {
        let Position { epoch, offset, .. } = missed.next;
        let cause = match missed.cause {
            MissedCause::Rewound => GapCause::Rewound,
            _ => GapCause::Trimmed,
        };
        Some(Reply::Gap { room: self.0.clone(), epoch, offset, cause })
    }
}
