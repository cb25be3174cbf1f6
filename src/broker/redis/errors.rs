//! Converts errors of the client.

use crate::{
    broker::store::BrokerError,
    error::Error,
    redis::{ErrorReply, RedisError},
};

/// Returns the broker's error for one of the client.
pub(super) fn broker_error(error: &Error) -> BrokerError {
    match RedisError::of(error) {
        Some(RedisError::Reply(reply)) => reply_error(reply),
        Some(RedisError::NotNow(reply)) => BrokerError::Refused(reply.to_string().into()),
        Some(RedisError::NotSent(Error::Full { .. })) => BrokerError::Full(error.to_string().into()),
        // Another attempt fails, too.
        Some(RedisError::NotSent(cause @ (Error::Encode(_) | Error::Panicked(_)))) => {
            BrokerError::failed(cause)
        }
        Some(RedisError::NotSent(cause)) => BrokerError::Unreachable(cause.to_string().into()),
        Some(RedisError::MayBeExecuted(cause)) => BrokerError::Uncertain(cause.to_string().into()),
        Some(RedisError::Closed) => BrokerError::Closed,
        _ => BrokerError::failed(error),
    }
}

fn reply_error(reply: &ErrorReply) -> BrokerError {
    match reply.code() {
        "WRONGKIND" => BrokerError::WrongKind,
        "LEASEENDED" => BrokerError::LeaseEnded,
        // The first write of each script needs memory, so nothing was written.
        "OOM" => BrokerError::Full(reply.to_string().into()),
        "NOPERM" | "NOAUTH" | "WRONGPASS" => BrokerError::Refused(reply.to_string().into()),
        _ => BrokerError::failed(reply),
    }
}
