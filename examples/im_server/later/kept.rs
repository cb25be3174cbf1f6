//! What is stored: the payloads of the two topics.

use crate::{message_id::MessageId, protocol::Reply};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A reminder: the payload of a timer that is due when the user wants to be reminded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reminder {
    pub(crate) number: u64,
    pub(crate) user: String,
    pub(crate) text: String,
    /// Milliseconds since 1970 (UTC).
    pub(crate) due: u64,
}

/// A message that is kept until its receiver has acknowledged it: the payload of a timer that is
/// due when the message expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) number: u64,
    pub(crate) to: String,
    pub(crate) content: Content,
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

impl Kept {
    /// Returns the message for the receiver. The receiver's session sets its id.
    pub(crate) fn message(&self) -> Reply {
        match self.content.clone() {
            Content::Direct { from, text, ts, .. } => Reply::Direct { from, text, ts, id: 0 },
            Content::Reminder { text, due } => Reply::Reminder { reminder: self.number, text, due, id: 0 },
        }
    }

    /// Returns the sender and the sender's id of a direct message.
    pub(crate) fn sender(&self) -> Option<(&str, Option<MessageId>)> {
        match &self.content {
            Content::Direct { from, id, .. } => {
                let id = id.clone().and_then(|id| MessageId::from_json(RawValue::from_string(id).ok()?));
                Some((from, id))
            }
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
