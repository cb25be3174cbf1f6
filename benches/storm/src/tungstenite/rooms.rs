//! Rooms and their members.

use crate::protocol::Reply;
use std::{cell::RefCell, collections::BTreeMap};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// Messages that wait for one client. A client with more of them misses some.
const QUEUE: usize = 1024;

/// All rooms, on the only thread.
#[derive(Default)]
pub(crate) struct Rooms(RefCell<BTreeMap<String, BTreeMap<String, Sender<Message>>>>);

/// Encodes a message once, for all receivers.
pub(crate) fn encoded(reply: &Reply) -> Message {
    // Serialising fails for maps whose keys are not strings, and a `Reply` contains no maps.
    Message::Text(Utf8Bytes::from(serde_json::to_string(reply).unwrap_or_default()))
}

impl Rooms {
    /// Makes `user` a member of a room, and notifies the other members.
    pub(crate) fn join(&self, room: &str, user: &str) -> Receiver<Message> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.0.borrow_mut().entry(room.to_owned()).or_default().insert(user.to_owned(), sender);
        let joined = vec![user.to_owned()];
        self.send(
            room,
            user,
            &Reply::Presence { room: room.to_owned(), joined, left: Vec::new(), count: None },
        );
        receiver
    }

    /// Ends a membership, and notifies the other members.
    pub(crate) fn leave(&self, room: &str, user: &str) {
        let mut rooms = self.0.borrow_mut();
        if let Some(members) = rooms.get_mut(room) {
            members.remove(user);
            if members.is_empty() {
                rooms.remove(room);
            }
        }
        drop(rooms);
        let left = vec![user.to_owned()];
        self.send(
            room,
            user,
            &Reply::Presence { room: room.to_owned(), joined: Vec::new(), left, count: None },
        );
    }

    /// Sends a message to all members of a room but `from`.
    pub(crate) fn send(&self, room: &str, from: &str, reply: &Reply) {
        let message = encoded(reply);
        if let Some(members) = self.0.borrow().get(room) {
            for (_, member) in members.iter().filter(|(name, _)| name.as_str() != from) {
                let _ = member.try_send(message.clone());
            }
        }
    }
}
