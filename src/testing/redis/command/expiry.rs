//! Commands for the time at which a key expires.

use super::{
    super::refusal::{Refusal, Reply, SYNTAX},
    call::{CommandCall, integer},
    reply::flag,
};
use crate::codec::RespValue;
use bytes::Bytes;

/// How a time is given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeUnit {
    pub(super) is_seconds: bool,
    /// Whether the time counts from now on.
    pub(super) is_relative: bool,
}

impl TimeUnit {
    /// Returns the unit of a command or an option, by its name in capitals.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let (is_seconds, is_relative) = match name {
            b"EX" | b"EXPIRE" => (true, true),
            b"PX" | b"PEXPIRE" => (false, true),
            b"EXAT" | b"EXPIREAT" => (true, false),
            b"PXAT" | b"PEXPIREAT" => (false, false),
            _ => return None,
        };
        Some(TimeUnit { is_seconds, is_relative })
    }

    /// Returns the milliseconds since the Unix epoch. `None` if they do not fit.
    pub(super) fn millis(self, time: i64, now: i64) -> Option<i64> {
        let millis = if self.is_seconds { time.checked_mul(1000)? } else { time };
        if self.is_relative { millis.checked_add(now) } else { Some(millis) }
    }
}

pub(super) fn invalid(command: &[u8]) -> Refusal {
    let command = command.to_ascii_lowercase();
    format!("ERR invalid expire time in '{}' command", String::from_utf8_lossy(&command)).into()
}

pub(super) fn expire(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    if args.len() > 3 {
        return Err(Refusal::of("ERR options of EXPIRE are not supported by the simulated Redis"));
    }
    let unit = TimeUnit::of(&args[0].to_ascii_uppercase()).ok_or(SYNTAX)?;
    let now = call.now();
    let at = unit.millis(integer(&args[2])?, now).ok_or_else(|| invalid(&args[0]))?;
    let key = &args[1];
    let Some(entry) = call.entry(key) else { return flag(false) };
    if at <= now {
        return flag(call.remove(key));
    }
    entry.expires_at = Some(at);
    call.changed(key);
    flag(true)
}

/// Converts milliseconds, which are not negative. The largest number is rounded too.
fn rounded_seconds(millis: i64) -> i64 {
    millis / 1000 + i64::from(millis % 1000 >= 500)
}

/// Replies the time that is left, or the time of the expiry.
pub(super) fn ttl(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let now = call.now();
    let reply = match call.entry(&args[1]).map(|entry| entry.expires_at) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => match args[0].to_ascii_uppercase().as_slice() {
            b"TTL" => rounded_seconds(at - now),
            b"PTTL" => at - now,
            b"EXPIRETIME" => rounded_seconds(at),
            _ => at,
        },
    };
    Ok(RespValue::Integer(reply))
}
