//! Settings of a simulated Redis.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The user of connections that have not named one.
pub(super) const DEFAULT_USER: &str = "default";

/// When the writes of a simulated Redis are safe (`appendonly`, `appendfsync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Persistence {
    /// Before they are acknowledged (`always`).
    #[default]
    Always,
    /// Up to a second later (`everysec`). A crash may lose the writes of the last second.
    EverySecond,
    /// Never (`appendonly no`): each start is with an empty keyspace.
    Never,
}

/// A user of a simulated Redis, with a password and permissions.
///
/// A new user may run all commands on all keys and channels. As soon as a pattern is added, only
/// keys or channels that match one are permitted. The permissions also apply to scripts of the
/// user.
#[derive(Debug, Clone)]
#[must_use]
pub struct RedisUser {
    pub(super) name: String,
    pub(super) password: String,
    pub(super) keys: Vec<String>,
    pub(super) channels: Vec<String>,
    pub(super) denied: BTreeSet<String>,
}

impl RedisUser {
    /// Returns a user with all permissions.
    pub fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        RedisUser {
            name: name.into(),
            password: password.into(),
            keys: Vec::new(),
            channels: Vec::new(),
            denied: BTreeSet::new(),
        }
    }

    /// Permits the keys that match a pattern (`~pattern`).
    pub fn keys(mut self, pattern: impl Into<String>) -> Self {
        self.keys.push(pattern.into());
        self
    }

    /// Permits the channels that match a pattern (`&pattern`), and `PSUBSCRIBE` of that pattern.
    pub fn channels(mut self, pattern: impl Into<String>) -> Self {
        self.channels.push(pattern.into());
        self
    }

    /// Denies a command with all its subcommands (`-script`), or one subcommand (`-script|load`).
    pub fn deny(mut self, command: &str) -> Self {
        self.denied.insert(command.to_ascii_lowercase());
        self
    }
}

#[derive(Debug)]
pub(super) struct ServerSettings {
    pub(super) persistence: Persistence,
    /// The password of the user `default`.
    pub(super) password: Option<String>,
    pub(super) users: BTreeMap<String, RedisUser>,
    pub(super) maxmemory_policy: String,
    /// How long each start takes.
    pub(super) loading_time: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings {
            persistence: Persistence::default(),
            password: None,
            users: BTreeMap::new(),
            maxmemory_policy: "noeviction".to_owned(),
            loading_time: Duration::ZERO,
        }
    }
}
