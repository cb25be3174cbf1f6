//! The messages of the chat protocol, as docs/im-protocol.md describes them; shared by the im_* programs.

use super::message_id::MessageId;
use serde::{Deserialize, Serialize};

/// What a client sends, one JSON object per line; `request.rs` reads it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(dead_code, reason = "each program sends a part of them")]
pub(crate) enum Request {
    Login {
        user: String,
    },
    Join {
        room: String,
    },
    Leave {
        room: String,
    },
    Say {
        room: String,
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Who {
        room: String,
    },
    Direct {
        to: String,
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Ack {
        /// That of the delivery.
        id: u64,
    },
    Lookup {
        user: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Ping,
    Pong,
}

/// What the server sends, one JSON object per line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Reply {
    Welcome {
        user: String,
        heartbeat_ms: u64,
        idle_ms: u64,
        ack_timeout_ms: u64,
    },
    Joined {
        room: String,
        user: String,
    },
    Left {
        room: String,
        user: String,
    },
    /// Announces changes of a room's membership, some time later: the new state of each user that
    /// joined or left.
    Presence {
        room: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        joined: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<String>,
    },
    Message {
        room: String,
        from: String,
        text: String,
        /// When the server got it, in milliseconds since 1970 (UTC).
        ts: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Members {
        room: String,
        users: Vec<String>,
    },
    Direct {
        from: String,
        text: String,
        /// When the server got it, in milliseconds since 1970 (UTC).
        ts: u64,
        /// The server's own, counted for each receiver: senders may choose the same one. Sent again, it is the same.
        id: u64,
    },
    /// The receiver has acknowledged a direct message.
    Delivered {
        to: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    /// The answer to a lookup.
    Profile {
        user: String,
        online: bool,
        /// When it logged in, in milliseconds since 1970 (UTC), if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<u64>,
        rooms: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    /// The client did not read fast enough, and some lines were dropped.
    Missed {
        /// Since the last time that it was told.
        count: u64,
        /// Since the connection began.
        total: u64,
    },
    Ping,
    Pong,
    Error {
        code: Code,
        message: String,
        /// Whom a direct message was for that is refused or has failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// What the client called that message, or a lookup.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Bye {
        reason: Reason,
    },
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    BadRequest,
    NotLoggedIn,
    NameTaken,
    NotInRoom,
    TooLarge,
    Undelivered,
    TooManyUnacked,
    TooManyLookups,
    Busy,
}

/// Why the server closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    Idle,
    Shutdown,
    ProtocolError,
    SlowConsumer,
    /// The login did not come in time, or a line came too slowly.
    TooSlow,
}
