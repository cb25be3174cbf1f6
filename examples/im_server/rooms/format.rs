//! The stored form of the messages of a room, and their delivery on this server.
//!
//! A message is stored as JSON, without the name of the room and without its position.

use crate::{
    hub::{Hub, lock},
    message_id::MessageId,
    protocol::{GapCause, Reply},
};
use netwheel::{
    ChannelGroup, Error, Result, SendError,
    broker::{Missed, MissedCause, Position, TopicEvent, TopicFormat, TopicName},
    bytes::Bytes,
    channel::Broadcast,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::{
    borrow::Cow,
    sync::{Arc, Mutex, Weak},
    time::Instant,
};

/// What the topic with the messages of each room begins with.
pub(super) const MESSAGES: &str = "room/";
/// What the map with the members of each room begins with.
pub(super) const MEMBERS: &str = "presence/";

#[derive(Serialize, Deserialize)]
struct StoredMessage<'a> {
    /// The sender's id, which only the sender's copy has.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    /// The number of the sender's server. Another server may have a user of the same name. 0 in
    /// messages of earlier versions.
    #[serde(default)]
    server: u64,
    #[serde(borrow)]
    from: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
    /// Time of receipt at the server, in milliseconds since 1970 (UTC).
    ts: u64,
}

/// The messages of one room.
///
/// A topic outlives its last member for some time, and keeps its format. So the format looks for
/// the room that has the name at the moment.
pub(super) struct RoomFormat {
    room: Arc<str>,
    /// The number of this server.
    server: u64,
    hub: Weak<Hub>,
    /// When the delivery of a message began, if it is measured.
    begun: Mutex<Option<Instant>>,
}

impl RoomFormat {
    pub(super) fn new(room: Arc<str>, hub: &Arc<Hub>) -> Self {
        RoomFormat { room, server: hub.tokens.server(), hub: Arc::downgrade(hub), begun: Mutex::default() }
    }
}

/// Returns the callback for the events of a room's topic.
pub(super) fn on_event(room: Arc<str>, hub: Weak<Hub>) -> impl Fn(TopicEvent) + Send + Sync {
    move |event| {
        let Some(room) = hub.upgrade().and_then(|hub| hub.rooms.find(&room)) else { return };
        match event {
            // The copies of messages that are stored come when the store is reached again.
            TopicEvent::Interrupted(_) => room.copies.release(),
            // Earlier messages are not delivered any more.
            TopicEvent::Missed(Missed { next, .. }) | TopicEvent::EpochChanged(next) => {
                room.copies.delivered(next);
            }
            _ => {}
        }
    }
}

impl TopicFormat<Reply> for RoomFormat {
    fn encode(&self, message: &Reply) -> Result<Bytes> {
        let Reply::Message { from, text, ts, sender_id, .. } = message else {
            return Err(Error::other("only messages are stored"));
        };
        let (id, server) = (sender_id.as_ref().map(MessageId::as_raw), self.server);
        let stored = StoredMessage { id, server, from: from.into(), text: text.into(), ts: *ts };
        serde_json::to_vec(&stored).map(Bytes::from).map_err(Error::other)
    }

    fn decode(&self, payload: Bytes, at: Option<Position>) -> Result<Reply> {
        let StoredMessage { id, server, from, text, ts } =
            serde_json::from_slice(&payload).map_err(Error::other)?;
        let is_local = server == self.server;
        let id = id.filter(|_| is_local);
        Ok(Reply::Message {
            room: self.room.to_string(),
            from: from.into_owned(),
            text: text.into_owned(),
            ts,
            epoch: at.map(|at| at.epoch),
            offset: at.map(|at| at.offset),
            id: None,
            sender_id: id.and_then(|id| MessageId::from_json(id.to_owned())),
            is_local,
        })
    }

    fn deliver(
        &self,
        message: Reply,
        at: Position,
        members: &ChannelGroup<Reply>,
    ) -> Result<Broadcast, SendError<Reply>> {
        let Some(hub) = self.hub.upgrade() else { return members.broadcast(message) };
        // Without a room, the last member has left.
        let Some(room) = hub.rooms.find(&self.room) else { return members.broadcast(message) };
        *lock(&self.begun) = hub.latency.begin();
        room.deliver(&hub, message, at, members)
    }

    fn delivered(&self, broadcast: Broadcast) {
        let begin = lock(&self.begun).take();
        if let (Some(hub), true) = (self.hub.upgrade(), begin.is_some()) {
            hub.latency.end(begin, broadcast);
        }
    }

    fn missed(&self, missed: &Missed) -> Option<Reply> {
        let cause = match missed.cause {
            MissedCause::Rewound => GapCause::Rewound,
            _ => GapCause::Trimmed,
        };
        let (room, Position { epoch, offset, .. }) = (self.room.to_string(), missed.next);
        Some(Reply::Gap { room, epoch, offset, cause })
    }
}

/// Returns a topic of a room. A long name is replaced by its hash, because topics have shorter
/// names than rooms.
pub(super) fn topic_name(prefix: &str, room: &str) -> String {
    if prefix.len() + room.len() <= TopicName::MAX_LEN {
        return format!("{prefix}{room}");
    }
    let hash: String = Sha256::digest(room).iter().map(|byte| format!("{byte:02x}")).collect();
    // No name of a room has a slash.
    format!("{prefix}sha256/{hash}")
}
