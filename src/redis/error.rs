//! `RedisError`: why a command failed.

use super::error_reply::ErrorReply;
use crate::error::{EncodeError, Error};
use std::fmt;

/// Why a command failed, and whether the server may have executed it.
///
/// It is the cause of an [`Error::Other`]; [`of`](RedisError::of) finds it there.
///
/// | error | executed | [`is_transient`](RedisError::is_transient) |
/// |---|---|---|
/// | `Reply` | no, except for a part of a script | no |
/// | `NotNow` | no, except for a part of a script | yes |
/// | `NotSent` | no | yes, unless the command cannot be encoded |
/// | `MayBeExecuted` | perhaps | yes, but only the program knows if it may repeat the command |
/// | `Closed` | no | no |
///
/// ```
/// use netwheel::{prelude::*, redis::{RedisClient, RedisError}};
///
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let redis = RedisClient::builder(&group, "redis://127.0.0.1:6379").connect()?;
/// redis.close();
/// let error = redis.call(["PING"]).wait().unwrap_err();
/// assert!(matches!(RedisError::of(&error), Some(RedisError::Closed)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RedisError {
    /// The server has replied with an error. A single command then did not have an effect. A script
    /// may have executed commands before the failed one.
    Reply(ErrorReply),
    /// The server refuses commands for now: `READONLY`, `LOADING`, `MASTERDOWN`, `TRYAGAIN`,
    /// `CLUSTERDOWN`, `BUSY`, `NOREPLICAS` or `MISCONF`. A script may have executed commands before
    /// one that was refused. Redis before 7.0 does not report such a refusal with its code, so it
    /// is a [`Reply`](RedisError::Reply) there.
    NotNow(ErrorReply),
    /// The command was not sent. The reason is
    ///
    /// - [`Error::Full`] if too many commands or bytes wait,
    /// - [`Error::Encode`] if the command cannot be sent on a shared connection,
    /// - the reason why the client is not connected, if it was not at the deadline, or
    /// - [`Error::TimedOut`] if it was connected at the deadline, or had not failed to connect.
    NotSent(Error),
    /// The command was sent, and its reply did not arrive: the connection broke, the deadline has
    /// passed ([`Error::TimedOut`]), or the client was closed ([`Error::Closed`]). Also a
    /// transaction whose `MULTI` the server has refused, and whose commands it has executed one by
    /// one. The cause is then the refusal.
    MayBeExecuted(Error),
    /// The client is closed. The command was not sent.
    Closed,
}

impl RedisError {
    /// Returns the `RedisError` in `error`, if there is one.
    pub fn of(error: &Error) -> Option<&RedisError> {
        match error {
            Error::Other(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the error for an error that the server has replied.
    pub(super) fn from_reply(reply: ErrorReply) -> Self {
        if reply.is_temporary() { RedisError::NotNow(reply) } else { RedisError::Reply(reply) }
    }

    /// Returns whether the same command may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            RedisError::NotNow(_) | RedisError::MayBeExecuted(_) => true,
            RedisError::NotSent(cause) => !matches!(cause, Error::Encode(_) | Error::Panicked(_)),
            RedisError::Reply(_) | RedisError::Closed => false,
        }
    }

    /// Returns whether the server may have executed the command, so that repeating it may execute
    /// it twice.
    pub fn may_be_executed(&self) -> bool {
        matches!(self, RedisError::MayBeExecuted(_))
    }

    /// Returns the error that the server has replied.
    pub fn reply(&self) -> Option<&ErrorReply> {
        match self {
            RedisError::Reply(reply) | RedisError::NotNow(reply) => Some(reply),
            _ => None,
        }
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisError::Reply(reply) => write!(f, "the Redis server replied: {reply}"),
            RedisError::NotNow(reply) => {
                write!(f, "the Redis server does not accept commands now: {reply}")
            }
            RedisError::NotSent(cause) => write!(f, "the Redis command was not sent: {cause}"),
            RedisError::MayBeExecuted(cause) => {
                write!(f, "the Redis command was sent and may have been executed: {cause}")
            }
            RedisError::Closed => f.write_str("the Redis client is closed"),
        }
    }
}

impl std::error::Error for RedisError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RedisError::NotSent(cause) | RedisError::MayBeExecuted(cause) => std::error::Error::source(cause),
            _ => None,
        }
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        Error::other(error)
    }
}

/// Returns the error for a command that a shared connection cannot carry.
pub(super) fn unsendable(why: impl Into<String>) -> Error {
    EncodeError::Unencodable(why.into().into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::RespValue;
    use std::time::Duration;

    #[test]
    fn errors_say_whether_to_try_again_and_whether_the_command_may_have_been_executed() {
        let reply = |text: &'static str| ErrorReply::of(&RespValue::Error(text.into())).unwrap();
        let timed_out = || Error::timed_out("a Redis command", Duration::from_secs(1));
        for (error, is_transient, may_be_executed) in [
            (RedisError::from_reply(reply("WRONGTYPE refusal")), false, false),
            (RedisError::from_reply(reply("READONLY refusal")), true, false),
            (RedisError::NotSent(timed_out()), true, false),
            (RedisError::NotSent(unsendable("it blocks")), false, false),
            (RedisError::MayBeExecuted(Error::Closed), true, true),
            (RedisError::Closed, false, false),
        ] {
            let wrapped = Error::from(error);
            let found = RedisError::of(&wrapped).unwrap();
            assert_eq!((found.is_transient(), found.may_be_executed()), (is_transient, may_be_executed));
            assert_eq!(found.reply().is_some(), found.to_string().contains("refusal"), "{found}");
        }
        assert!(RedisError::of(&Error::Closed).is_none());
    }
}
