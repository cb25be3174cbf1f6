//! The messages of the chat protocol (docs/im-protocol.md), shared by the im_* programs.

use super::message_id::MessageId;
use serde::{Deserialize, Serialize};

/// A request of a client, one JSON object per line; parsed by `request.rs`.
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
    },
    Joined {
        room: String,
        user: String,
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
    },
    Message {
        room: String,
        from: String,
        text: String,
        /// Time of receipt at the server, in milliseconds since 1970 (UTC).
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
    Ping,
    Pong,
    Error {
        code: Code,
        message: String,
        /// Receiver of a direct message that was refused or has failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// The client's id of that message, lookup or reminder; the number of a reminder that does
        /// not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<MessageId>,
    },
    Bye {
        reason: Reason,
        /// Time after which the client should connect again, if the server is overloaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}

impl From<Reason> for Reply {
    fn from(reason: Reason) -> Self {
        Reply::Bye { reason, retry_after_ms: None }
    }
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
    /// The server is overloaded and has refused the login.
    Overloaded,
}
