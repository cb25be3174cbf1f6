//! The Redis client with `redis-server`, with the simulated Redis, and amid faults.
//!
//! The tests with `redis-server` are skipped without it, except in CI.

mod conformance;
mod kills;
mod limits;
mod servers;
mod simulated;
mod subscriptions;
#[cfg(feature = "tls")]
mod tls;
mod users;

use netwheel::{Error, codec::RespValue, redis::RedisError};
use std::fmt::Debug;

/// Returns a reply as text: errors begin with `-`, arrays are in brackets.
fn text_of(reply: &RespValue) -> String {
    let texts = |items: &[RespValue]| items.iter().map(text_of).collect::<Vec<_>>().join(" ");
    match reply {
        RespValue::Integer(number) => number.to_string(),
        RespValue::Array(items) | RespValue::Set(items) => format!("[{}]", texts(items)),
        RespValue::Map(pairs) => {
            let pair = |(key, value): &(RespValue, RespValue)| format!("{}:{}", text_of(key), text_of(value));
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(" "))
        }
        reply if reply.is_null() => "nil".to_owned(),
        reply => {
            let text = String::from_utf8_lossy(reply.as_bytes().expect("a text")).into_owned();
            if reply.is_error() { format!("-{text}") } else { text }
        }
    }
}

/// Returns a result as text, with the kind of error.
fn outcome(result: Result<RespValue, Error>) -> String {
    match result {
        Ok(reply) => text_of(&reply),
        Err(error) => match RedisError::of(&error) {
            Some(RedisError::Reply(reply)) => format!("-{reply}"),
            Some(RedisError::NotNow(reply)) => format!("not now: {}", reply.code()),
            Some(RedisError::NotSent(cause)) => format!("not sent: {}", kind(cause)),
            Some(RedisError::MayBeExecuted(cause)) => format!("may be executed: {}", kind(cause)),
            Some(RedisError::Closed) => "closed".to_owned(),
            _ => format!("{error:#}"),
        },
    }
}

/// Returns the name of a variant.
fn kind(value: &impl Debug) -> String {
    format!("{value:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}
