//! Commands for keys of any type, and those without keys.

use super::{
    super::{
        glob,
        keyspace::DATABASES,
        refusal::{Refusal, Reply, SYNTAX},
    },
    call::CommandCall,
    reply::{bulk, count, flag, ok, simple},
};
use crate::codec::RespValue;
use bytes::Bytes;

pub(super) fn del(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(args[1..].iter().filter(|key| call.remove(key)).count())
}

pub(super) fn exists(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(args[1..].iter().filter(|key| call.entry(key).is_some()).count())
}

pub(super) fn type_of(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    simple(call.entry(&args[1]).map_or("none", |entry| entry.value.type_name()))
}

/// Removes the keys of a database that have expired.
fn expire_all(call: &mut CommandCall<'_>) {
    let now = call.now();
    let database = call.keyspace.database(call.database);
    let expired: Vec<Bytes> =
        database.iter().filter(|(_, entry)| entry.has_expired(now)).map(|(key, _)| key.clone()).collect();
    expired.iter().for_each(|key| call.expire(key));
}

pub(super) fn keys(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    expire_all(call);
    let keys = call.keyspace.database(call.database).keys();
    Ok(RespValue::Array(keys.filter(|key| glob::matches(&args[1], key)).map(bulk).collect()))
}

pub(super) fn dbsize(call: &mut CommandCall<'_>, _args: &[Bytes]) -> Reply {
    expire_all(call);
    count(call.keyspace.database(call.database).len())
}

pub(super) fn flushall(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    match args {
        [_] => {}
        [_, how] if how.eq_ignore_ascii_case(b"SYNC") || how.eq_ignore_ascii_case(b"ASYNC") => {}
        _ => return Err(SYNTAX),
    }
    for index in 0..DATABASES {
        let database = std::mem::take(call.keyspace.database_mut(index));
        call.effects.touched.extend(database.into_keys().map(|key| (index, key)));
    }
    call.is_dirty = true;
    ok()
}

pub(super) fn echo(_call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    Ok(bulk(&args[1]))
}

pub(super) fn ping(_call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    match args {
        [_] => simple("PONG"),
        [_, message] => Ok(bulk(message)),
        _ => Err(Refusal::arity("ping")),
    }
}

pub(super) fn time(call: &mut CommandCall<'_>, _args: &[Bytes]) -> Reply {
    let (seconds, micros) = (call.now_micros / 1_000_000, call.now_micros % 1_000_000);
    Ok(RespValue::Array([seconds, micros].map(|number| RespValue::Bulk(number.to_string().into())).to_vec()))
}

pub(super) fn persist(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let key = &args[1];
    let had_expiry = call.entry(key).is_some_and(|entry| entry.expires_at.take().is_some());
    if had_expiry {
        call.changed(key);
    }
    flag(had_expiry)
}
