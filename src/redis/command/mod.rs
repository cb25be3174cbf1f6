//! Commands: their arguments, and a check for shared connections.

mod redis_command;
mod script;
mod shared_use;

pub(super) use redis_command::CommandRequest;
pub use redis_command::RedisCommand;
pub use script::RedisScript;
pub(super) use script::ScriptCall;
