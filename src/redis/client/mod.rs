//! `RedisClient`: the handle of a client, its builder, and URLs.

mod builder;
mod redis_client;
mod stats;
mod url;

pub use builder::RedisClientBuilder;
pub use redis_client::RedisClient;
pub use stats::RedisStats;
