//! `ClientSession`: the state of one connection.

use super::command::CommandInfo;
use bytes::Bytes;
use std::{collections::BTreeSet, fmt, sync::Arc};

/// Makes a connection look at its outbox and at the process.
pub(super) type Wake = Arc<dyn Fn() + Send + Sync>;

/// A transaction that collects commands.
#[derive(Debug, Default)]
pub(super) struct CommandQueue {
    pub(super) commands: Vec<(&'static CommandInfo, Vec<Bytes>)>,
    /// Whether a command was refused, so that `EXEC` fails.
    pub(super) is_aborted: bool,
}

pub(super) struct ClientSession {
    pub(super) wake: Wake,
    /// The user, after the authentication.
    pub(super) user: Option<String>,
    pub(super) name: Bytes,
    pub(super) database: usize,
    pub(super) queue: Option<CommandQueue>,
    pub(super) watched: BTreeSet<(usize, Bytes)>,
    /// Whether a watched key has changed.
    pub(super) is_dirty: bool,
}

impl ClientSession {
    pub(super) fn new(wake: Wake, user: Option<String>) -> Self {
        ClientSession {
            wake,
            user,
            name: Bytes::new(),
            database: 0,
            queue: None,
            watched: BTreeSet::new(),
            is_dirty: false,
        }
    }
}

impl fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("user", &self.user).field("name", &self.name).finish_non_exhaustive()
    }
}
