//! `RedisEvent`: the events of a client's connections.

use super::server_info::ServerInfo;
use crate::error::Error;
use std::{fmt, time::Duration};

/// A connection of a [`RedisClient`](super::RedisClient), in all its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RedisConnection {
    /// A connection for commands, with its number from 0.
    Commands(usize),
    /// The connection for subscriptions.
    Subscriptions,
}

impl fmt::Display for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisConnection::Commands(number) => write!(f, "connection {number} for commands"),
            RedisConnection::Subscriptions => f.write_str("the connection for subscriptions"),
        }
    }
}

/// An event of a client, for the hook of
/// [`RedisClientBuilder::on_event`](super::RedisClientBuilder::on_event).
#[derive(Debug)]
#[non_exhaustive]
pub enum RedisEvent<'a> {
    /// A connection is ready: the server has accepted the user, and the facts about it are known.
    #[non_exhaustive]
    Connected {
        /// The connection.
        connection: RedisConnection,
        /// The server.
        server: &'a ServerInfo,
    },
    /// A connection that was ready has ended.
    #[non_exhaustive]
    Lost {
        /// The connection.
        connection: RedisConnection,
        /// Why it has ended. [`Error::Closed`] if the server or the client has closed it,
        /// [`RedisError::NotNow`](super::RedisError::NotNow) if the server is a replica.
        cause: &'a Error,
        /// The delay before the next attempt; `None` if there is none.
        next: Option<Duration>,
    },
    /// An attempt has failed: to connect, or to log in
    /// ([`RedisError::Reply`](super::RedisError::Reply)).
    #[non_exhaustive]
    Failed {
        /// The connection.
        connection: RedisConnection,
        /// Why it has failed.
        cause: &'a Error,
        /// The delay before the next attempt; `None` if there is none.
        next: Option<Duration>,
    },
}

/// The hook for events.
pub(super) type EventHook = dyn Fn(RedisEvent<'_>) + Send + Sync;
