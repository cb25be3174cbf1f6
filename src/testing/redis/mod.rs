//! A simulated Redis, for tests of programs that use one.
//!
//! A [`RedisServer`] speaks RESP2 and RESP3 and knows the commands that the table below lists. It
//! runs on event loops like any server: on sockets of the system, and unchanged in a
//! [simulation](super::simulation), where it loses its connections, its process and the power.
//! Its keys are on a [`RedisDisk`], which loses the end of its file in a crash.
//!
//! ```
//! use netwheel::{
//!     codec::{Resp, RespValue},
//!     prelude::*,
//!     testing::{
//!         redis::{Persistence, RedisDisk, RedisServer},
//!         simulation::{Journal, Simulation},
//!     },
//! };
//! use std::time::Duration;
//!
//! let redis = RedisServer::new(RedisDisk::new()).persistence(Persistence::EverySecond);
//!
//! let mut simulation = Simulation::new(7);
//! let server = redis.clone();
//! simulation.node("redis", "10.0.0.1", move || {
//!     let group = EventLoopGroup::builder().threads(1).build()?;
//!     server.bind(&group, "10.0.0.1:6379")?.closed().wait()
//! });
//! let replies = Journal::new();
//! let heard = replies.clone();
//! let client = simulation.node("client", "10.0.0.2", move || {
//!     let heard = heard.clone();
//!     let group = EventLoopGroup::builder().threads(1).build()?;
//!     let client = ClientBootstrap::new(&group).pipeline(move |_peer| {
//!         let heard = heard.clone();
//!         Pipeline::codec(Resp::client()).on_read(move |ctx, reply| {
//!             heard.push(reply);
//!             Ok(ctx.close())
//!         })
//!     });
//!     let channel = client.connect("redis:6379").wait()?;
//!     channel.write(RespValue::command(["INCR", "visits"]))?;
//!     channel.closed().wait().map(drop)
//! });
//! simulation.run_until_ended(client, Duration::from_secs(60))?;
//! replies.with(|replies| assert_eq!(replies, [RespValue::Integer(1)]));
//! # Ok::<(), netwheel::testing::simulation::Failure>(())
//! ```
//!
//! # Commands
//!
//! | subject | commands |
//! |---|---|
//! | connections | `HELLO`, `AUTH`, `SELECT`, `CLIENT ID`, `CLIENT SETNAME`, `CLIENT GETNAME`, `CLIENT NO-EVICT`, `RESET`, `QUIT`, `PING`, `ECHO` |
//! | the server | `INFO`, `ROLE`, `TIME`, `COMMAND INFO`, `COMMAND COUNT`, `DBSIZE`, `FLUSHALL` |
//! | keys | `DEL`, `UNLINK`, `EXISTS`, `TYPE`, `KEYS`, `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT`, `PERSIST`, `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME` |
//! | strings | `GET`, `SET`, `MGET`, `MSET`, `APPEND`, `STRLEN`, `INCR`, `INCRBY`, `DECR`, `DECRBY` |
//! | hashes | `HSET`, `HSETNX`, `HGET`, `HMGET`, `HGETALL`, `HDEL`, `HEXISTS`, `HLEN`, `HINCRBY` |
//! | sets | `SADD`, `SREM`, `SMEMBERS`, `SISMEMBER`, `SCARD` |
//! | sorted sets | `ZADD`, `ZINCRBY`, `ZREM`, `ZSCORE`, `ZCARD`, `ZRANGE`, `ZRANGEBYSCORE`, `ZREMRANGEBYSCORE` |
//! | lists | `LPUSH`, `RPUSH`, `LPOP`, `RPOP`, `LRANGE`, `LLEN` |
//! | streams | `XADD`, `XDEL`, `XLEN`, `XRANGE`, `XREAD` |
//! | messages | `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`, `UNSUBSCRIBE`, `PUNSUBSCRIBE`, `SUNSUBSCRIBE`, `PUBLISH`, `SPUBLISH`, `PUBSUB CHANNELS`, `PUBSUB NUMSUB` |
//! | transactions | `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH` |
//! | scripts | `EVAL`, `EVALSHA`, `SCRIPT LOAD`, `SCRIPT FLUSH`, with [closures](RedisServer::script) in place of Lua |
//!
//! Replies, errors and their order are those of Redis 7.0.15: a test runs the same conversations
//! with both. docs/simulated-redis.md lists the differences.
//!
//! [`RedisServer::broker_scripts`] registers the scripts of `broker::RedisBroker` (feature
//! `broker-redis`).
//!
//! # Time
//!
//! Keys expire by the time of day of the loop's clock, and so on a [manual
//! clock](super::ManualClock) too.

#[cfg(feature = "broker-redis")]
mod broker;
mod command;
mod connection;
mod disk;
mod glob;
mod keyspace;
mod number;
mod permissions;
mod process;
mod pubsub;
mod refusal;
mod script;
mod server;
mod service;
mod session;
mod settings;
mod state;

pub use disk::RedisDisk;
pub use script::ScriptContext;
pub use server::RedisServer;
pub use settings::{Persistence, RedisUser};
