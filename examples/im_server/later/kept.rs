//! What is stored: the payload of the timers of reminders, and the entries of the map of messages.

use crate::{message_id::MessageId, protocol::Reply};
use netwheel::{
    Error, Result,
    broker::{MapCondition, MapEntry, store::MapChange},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A reminder: the payload of a timer that is due when the user wants to be reminded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reminder {
    pub(crate) number: u64,
    /// The server that has stored it. 0 in reminders of earlier versions.
    #[serde(default)]
    pub(crate) server: u64,
    pub(crate) user: String,
    pub(crate) text: String,
    /// Milliseconds since 1970 (UTC).
    pub(crate) due: u64,
}

/// A message that is kept until its receiver has acknowledged it, or until it expires: the value of
/// an entry of the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) id: KeptId,
    pub(crate) to: String,
    /// Milliseconds since 1970 (UTC).
    pub(crate) expires: u64,
    pub(crate) content: Content,
}

/// The id of a kept message, unique among all servers of a store. Ids of one receiver are in the
/// order of the times at which they were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct KeptId {
    pub(crate) number: u64,
    /// The server that has given the number. It differs after a restart.
    pub(crate) server: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Content {
    Direct {
        from: String,
        text: String,
        ts: u64,
        /// The sender's id as JSON text, because its spelling matters.
        id: Option<String>,
    },
    /// A reminder whose time has come.
    Reminder { text: String, due: u64 },
}

impl Reminder {
    /// Returns the message that this becomes. Its id is always the same, so that it is kept once if
    /// the server is killed before the timer has ended.
    pub(crate) fn into_kept(self, expires: u64) -> Kept {
        let Reminder { number, server, user, text, due } = self;
        Kept { id: KeptId { number, server }, to: user, expires, content: Content::Reminder { text, due } }
    }

    pub(crate) fn id(&self) -> KeptId {
        KeptId { number: self.number, server: self.server }
    }
}

impl Kept {
    /// Reads an entry of the map.
    ///
    /// # Errors
    /// Fails if the value is not a message.
    pub(crate) fn parse(entry: &MapEntry) -> Result<Self> {
        serde_json::from_slice(&entry.value).map_err(Error::other)
    }

    /// Returns the change of the map that adds the message, unless it is there.
    pub(crate) fn addition(&self) -> MapChange {
        let value = serde_json::to_vec(self);
        let value = value.unwrap_or_else(|error| unreachable!("a message is always JSON: {error}"));
        let mut change = MapChange::set(self.key(), value);
        change.condition = Some(MapCondition::Absent);
        change
    }

    /// Returns the key of the entry. No name contains a slash.
    pub(crate) fn key(&self) -> String {
        format!("{}/{:016x}-{:016x}", self.to, self.id.number, self.id.server)
    }

    /// Returns the message for the receiver. The receiver's session sets its id.
    pub(crate) fn message(&self) -> Reply {
        match self.content.clone() {
            Content::Direct { from, text, ts, .. } => Reply::Direct { from, text, ts, id: 0 },
            Content::Reminder { text, due } => Reply::Reminder { reminder: self.id.number, text, due, id: 0 },
        }
    }

    /// Returns the sender and the sender's id of a direct message.
    pub(crate) fn sender(&self) -> Option<(&str, Option<&str>)> {
        match &self.content {
            Content::Direct { from, id, .. } => Some((from, id.as_deref())),
            Content::Reminder { .. } => None,
        }
    }

    /// Returns the number of bytes of the texts.
    pub(crate) fn len(&self) -> usize {
        self.to.len()
            + match &self.content {
                Content::Direct { from, text, id, .. } => {
                    from.len() + text.len() + id.as_ref().map_or(0, String::len)
                }
                Content::Reminder { text, .. } => text.len(),
            }
    }
}

/// Reads the id of a sender from its JSON text.
pub(crate) fn sender_id(text: Option<&str>) -> Option<MessageId> {
    MessageId::from_json(RawValue::from_string(text?.to_owned()).ok()?)
}
