//! The part of the chat protocol (docs/im-protocol.md) that rooms need, for the bots and for the
//! small node of this program.
//!
//! Other messages of a server are ignored, as the protocol asks of clients.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest length of a line in bytes: a list of all members of a room.
pub(crate) const MAX_LINE: usize = 4 * 1024 * 1024;

/// A request of a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Request {
    Login {
        user: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<Resume>,
        /// Whether a message with an id that was used before is a repetition.
        unique_ids: bool,
    },
    Join {
        room: String,
    },
    Say {
        room: String,
        text: String,
        id: u64,
    },
    Who {
        room: String,
    },
    Ping,
    Pong,
}

/// The session that a login continues.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Resume {
    pub(crate) token: String,
    /// The epoch and the offset of the last message that the client has seen, by room.
    pub(crate) rooms: BTreeMap<String, (u64, u64)>,
}

/// A message of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Reply {
    Welcome {
        user: String,
        version: u32,
        #[serde(default)]
        resume_token: String,
    },
    Joined {
        room: String,
        user: String,
        #[serde(default)]
        epoch: u64,
        #[serde(default)]
        offset: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recovered: Option<bool>,
    },
    /// Some messages are not received. Messages behind this position follow.
    Gap {
        room: String,
        epoch: u64,
        offset: u64,
        cause: String,
    },
    /// The message with this id is stored at this position.
    Said {
        room: String,
        epoch: u64,
        offset: u64,
        id: u64,
    },
    Message {
        room: String,
        from: String,
        text: String,
        #[serde(default)]
        epoch: u64,
        #[serde(default)]
        offset: u64,
        /// Only in the sender's own copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
    },
    Members {
        room: String,
        users: Vec<String>,
    },
    Ping,
    Pong,
    Error {
        code: String,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
    },
    Bye {
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// Any other message.
    #[serde(other)]
    Other,
}
