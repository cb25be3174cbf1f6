//! The messages of the chat protocol (docs/im-protocol.md), shared by the im_* programs.

use super::message_id::MessageId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the protocol; docs/im-protocol.md lists the changes.
#[allow(dead_code, reason = "clients do not need it")]
pub(crate) const VERSION: u32 = 5;

/// Returns the version of a server that does not state it.
fn first_version() -> u32 {
    1
}

/// A request of a client, one JSON object per line; parsed by `request.rs`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(dead_code, reason = "each program sends a part of them")]
pub(crate) enum Request {
    Login {
        user: String,
        /// Continues an earlier session of the same client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<Resume>,
        /// Whether the ids of this client's messages to rooms are unique.
        #[serde(default, skip_serializing_if = "is_false")]
        unique_ids: bool,
    },
    Join {
        room: String,
        /// The largest number of earlier messages to send.
        #[serde(default, skip_serializing_if = "is_zero")]
        history: u64,
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
    /// The client does not look at a room: it wants the number of messages instead of messages.
    Passive {
        room: String,
    },
    /// The client looks at a room again.
    Active {
        room: String,
    },
    Direct {
        to: String,
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Ack {
        /// Id of the delivery.
        id: u64,
    },
    Lookup {
        user: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Remind {
        /// The time until the reminder, such as `3d`.
        #[serde(rename = "in")]
        after: String,
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    /// Asks for the user's own reminders.
    Reminders,
    Forget {
        /// Number of the reminder.
        id: u64,
    },
    Ping,
    Pong,
}

#[allow(dead_code, reason = "the server does not write requests")]
impl Request {
    /// Returns a login that continues no session.
    pub(crate) fn login(user: impl Into<String>) -> Self {
        Request::Login { user: user.into(), resume: None, unique_ids: false }
    }

    /// Returns a request for the messages of a room from now on.
    pub(crate) fn join(room: impl Into<String>) -> Self {
        Request::Join { room: room.into(), history: 0 }
    }
}

#[allow(dead_code, reason = "the server does not write requests")]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(dead_code, reason = "the server does not write requests")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The session that a login continues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resume {
    /// The last `resume_token`.
    pub(crate) token: String,
    /// The epoch and the offset of the last message that the client has seen, by room.
    #[serde(default)]
    pub(crate) rooms: BTreeMap<String, (u64, u64)>,
}

/// A reminder in the list of its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReminderInfo {
    /// Number of the reminder.
    pub(crate) reminder: u64,
    /// When it is due, in milliseconds since 1970 (UTC).
    pub(crate) due: u64,
    pub(crate) text: String,
}

/// A message of the server, one JSON object per line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Reply {
    Welcome {
        user: String,
        heartbeat_ms: u64,
        idle_ms: u64,
        ack_timeout_ms: u64,
        /// Version of the protocol.
        #[serde(default = "first_version")]
        version: u32,
        /// Proves in a later login that this session was the client's own.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        resume_token: String,
    },
    Joined {
        room: String,
        user: String,
        /// Epoch of the position in the room behind which messages follow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
        /// Offset of that position.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        /// Whether all messages since the position in the login follow. Only in resumed rooms.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recovered: Option<bool>,
    },
    Left {
        room: String,
        user: String,
    },
    /// Announces changes of a room's membership after a short delay: the new state of each user
    /// that joined or left.
    Presence {
        room: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        joined: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<String>,
        /// Number of members, in a room that is too large for names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<usize>,
    },
    /// The client is passive in a room.
    Passive {
        room: String,
        /// Number of all messages to the room, from which the client counts.
        total: u64,
    },
    /// The number of messages to a room has changed. Sent to clients that are passive in it.
    Unread {
        room: String,
        total: u64,
    },
    /// The client is active in a room again.
    Active {
        room: String,
        /// Number of all messages to the room.
        total: u64,
        /// Epoch of the position in the room behind which messages follow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
        /// Offset of that position.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
    },
    Message {
        room: String,
        from: String,
        text: String,
        /// Time of receipt at the server, in milliseconds since 1970 (UTC).
        ts: u64,
        /// Epoch of the message's position in the room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
        /// Offset of that position.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
        /// The sender's id, which becomes the `id` in the sender's copy. It is not sent.
        #[serde(skip)]
        sender_id: Option<MessageId>,
        /// Whether the sender is a user of this server. It is not sent.
        #[serde(skip)]
        is_local: bool,
    },
    /// The client does not receive some messages of a room. It goes on behind a position.
    Gap {
        room: String,
        epoch: u64,
        offset: u64,
        cause: GapCause,
    },
    /// A message with the same id was stored before, so this one was not.
    Said {
        room: String,
        epoch: u64,
        offset: u64,
        id: MessageId,
    },
    Members {
        room: String,
        users: Vec<String>,
    },
    Direct {
        from: String,
        text: String,
        /// Time of receipt at the server, in milliseconds since 1970 (UTC).
        ts: u64,
        /// Id assigned by the server, counted per receiver, because different senders may choose
        /// the same id. A retry has the same id.
        id: u64,
    },
    /// The receiver has acknowledged a direct message.
    Delivered {
        to: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    /// A direct message is kept, because its receiver is not connected.
    Kept {
        to: String,
        /// When it expires, in milliseconds since 1970 (UTC).
        expires: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    /// A reminder is stored.
    ReminderSet {
        reminder: u64,
        /// When it is due, in milliseconds since 1970 (UTC).
        due: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    /// The user's own reminders.
    Reminders {
        reminders: Vec<ReminderInfo>,
    },
    /// A reminder was cancelled.
    Forgotten {
        reminder: u64,
    },
    /// The time of a reminder has come.
    Reminder {
        reminder: u64,
        text: String,
        /// When it was due, in milliseconds since 1970 (UTC).
        due: u64,
        /// Id to acknowledge, counted together with those of direct messages.
        id: u64,
    },
    /// The answer to a lookup.
    Profile {
        user: String,
        online: bool,
        /// Time of login, in milliseconds since 1970 (UTC), if the user is online.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<u64>,
        rooms: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    /// Some lines were dropped because the client did not read fast enough.
    Missed {
        /// Lines dropped since the last such message.
        count: u64,
        /// Lines dropped since the connection was accepted.
        total: u64,
    },
    Ping {
        /// Replaces the token of the `welcome`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume_token: Option<String>,
    },
    Pong,
    Error {
        code: Code,
        message: String,
        /// The room that was not joined, or in which the client has not become passive or active,
        /// as in the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        room: Option<String>,
        /// Receiver of a direct message that was refused or has failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// The client's id of that message, of a message to a room, or of a lookup or reminder; the
        /// number of a reminder that does not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Bye {
        reason: Reason,
        /// Time in milliseconds after which the client should connect again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}

/// Why a client does not receive messages of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GapCause {
    /// The server has lost messages that the client may have seen.
    Rewound,
    /// Messages that the client has not seen are not kept any more.
    Trimmed,
}

/// Reason for which a request was refused.
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
    TooManyReminders,
    NoSuchReminder,
    Expired,
    Busy,
}

/// Reason for which the server closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    Idle,
    Shutdown,
    ProtocolError,
    SlowConsumer,
    /// The login or a line took too long.
    TooSlow,
    /// The connection has reached its maximum age.
    MaxAge,
    /// The client has logged in again, and this was its earlier connection.
    Replaced,
    /// The server is overloaded and has refused the login.
    Overloaded,
}
