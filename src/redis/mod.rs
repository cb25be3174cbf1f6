//! A client of Redis and Valkey, on channels of this crate.
//!
//! [`RedisClient`] keeps one connection for commands, or a few, and one for subscriptions. All of
//! them reconnect. A command is an array of arguments, and its reply a
//! [`RespValue`](crate::codec::RespValue):
//!
//! ```no_run
//! use netwheel::{prelude::*, redis::RedisClient};
//!
//! # fn main() -> Result {
//! let group = EventLoopGroup::builder().threads(1).build()?;
//! let redis = RedisClient::builder(&group, "redis://127.0.0.1:6379").connect()?;
//! redis.call(["SET", "colour", "blue"]).wait()?;
//! let news = redis.subscribe("news", |event| println!("{event:?}"))?;
//! # drop(news);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - Commands are pipelined. Commands of one thread are sent in the order of the calls, if the
//!   client has one connection for commands (the default) or the commands have the same
//!   [`affinity`](RedisCommand::affinity).
//! - A command is sent at most once. If the connection breaks, or the deadline passes, before the
//!   reply has arrived, the error says that the command [may have been
//!   executed](RedisError::MayBeExecuted). The client does not repeat such a command.
//! - While the client is disconnected, commands wait for the next connection until their deadline.
//!   Then they fail as [not sent](RedisError::NotSent).
//! - A server that replies `READONLY` is a replica. The client sends no further command there,
//!   waits for the replies of earlier ones, looks the name up again and reconnects.
//! - A connection on which nothing arrives is checked with `PING`, so a half-open connection is
//!   found within [`heartbeat_interval`](RedisSettings::heartbeat_interval) and
//!   [`heartbeat_timeout`](RedisSettings::heartbeat_timeout).
//! - All queues have limits of number and bytes. A command beyond them is handed back.
//!
//! # What it does not do
//!
//! - Redis Cluster and Sentinel. A `MOVED` or `ASK` reply is an ordinary
//!   [`Reply`](RedisError::Reply) error. A name that follows the master works, because each
//!   reconnect looks it up again. Programs that use several independent servers have one client for
//!   each.
//! - Commands that block, such as `BLPOP`, and commands that change the state of the connection,
//!   such as `SELECT` and `MULTI`: they are refused, because commands share connections.
//!   [`RedisCommand::transaction`] sends `MULTI`, commands and `EXEC` in one piece.
//! - Servers without `HELLO 3`: Redis before 6.0.
//!
//! # Thread
//!
//! Each connection has an event loop of the group. Completions, sinks of subscriptions and the hook
//! for events are called on these loops, so they must not block.

mod client;
mod command;
mod connection;
mod error;
mod error_reply;
mod event;
mod lane;
mod server_info;
mod settings;
mod subscription;

pub use client::{RedisClient, RedisClientBuilder, RedisStats};
pub use command::{RedisCommand, RedisScript};
pub use error::RedisError;
pub use error_reply::ErrorReply;
pub use event::{RedisConnection, RedisEvent};
pub use server_info::{RedisRole, ServerInfo};
pub use settings::RedisSettings;
pub use subscription::{RedisSubscription, SubscriptionEvent};
