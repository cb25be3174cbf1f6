//! Commands: their arguments, and what a shared connection cannot carry.

mod redis_command;
mod script;
mod shared_use;

pub use redis_command::RedisCommand;
pub(super) use redis_command::Request;
pub use script::RedisScript;
pub(super) use script::ScriptCall;
