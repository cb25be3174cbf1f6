//! Commands for strings.

use super::{
    super::{
        keyspace::StoredValue,
        refusal::{NOT_INTEGER, Refusal, Reply, SYNTAX},
    },
    call::{CommandCall, integer},
    expiry::{TimeUnit, invalid},
    reply::{bulk_or_null, count, ok},
};
use crate::codec::RespValue;
use bytes::Bytes;

/// The longest string, which limits `APPEND`.
const MAX_STRING: usize = 512 << 20;

pub(super) fn get(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    Ok(bulk_or_null(call.read::<Bytes>(&args[1])?))
}

pub(super) fn mget(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    // A key of another type is absent for this command.
    let values = args[1..].iter().map(|key| bulk_or_null(call.read::<Bytes>(key).ok().flatten()));
    Ok(RespValue::Array(values.collect()))
}

/// The options of `SET`.
#[derive(Debug, Default)]
struct SetOptions {
    nx: bool,
    xx: bool,
    get: bool,
    keep_ttl: bool,
    expiry: Option<(TimeUnit, Bytes)>,
}

impl SetOptions {
    fn parse(options: &[Bytes]) -> Result<Self, Refusal> {
        let mut parsed = SetOptions::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match option.to_ascii_uppercase().as_slice() {
                b"NX" if !parsed.xx => parsed.nx = true,
                b"XX" if !parsed.nx => parsed.xx = true,
                b"GET" => parsed.get = true,
                b"KEEPTTL" if parsed.expiry.is_none() => parsed.keep_ttl = true,
                name @ (b"EX" | b"PX" | b"EXAT" | b"PXAT") if parsed.expiry.is_none() && !parsed.keep_ttl => {
                    let unit = TimeUnit::of(name).ok_or(SYNTAX)?;
                    parsed.expiry = Some((unit, options.next().ok_or(SYNTAX)?.clone()));
                }
                _ => return Err(SYNTAX),
            }
        }
        Ok(parsed)
    }
}

pub(super) fn set(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let (key, value) = (&args[1], &args[2]);
    let options = SetOptions::parse(&args[3..])?;
    let now = call.now();
    let expires_at = match &options.expiry {
        None => None,
        Some((unit, time)) => {
            let time = integer(time)?;
            let at = if time > 0 { unit.millis(time, now) } else { None };
            Some(at.ok_or_else(|| invalid(b"set"))?)
        }
    };
    let old = if options.get { Some(bulk_or_null(call.read::<Bytes>(key)?)) } else { None };
    let entry = call.entry(key);
    let exists = entry.is_some();
    let kept = entry.filter(|_| options.keep_ttl).and_then(|entry| entry.expires_at);
    if (options.nx && exists) || (options.xx && !exists) {
        return Ok(old.unwrap_or(RespValue::Null));
    }
    call.set(key, StoredValue::Text(value.clone()));
    if let Some(entry) = call.keyspace.database_mut(call.database).get_mut(key) {
        entry.expires_at = expires_at.or(kept);
    }
    old.map_or_else(ok, Ok)
}

pub(super) fn mset(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    if args.len().is_multiple_of(2) {
        return Err(Refusal::arity("mset"));
    }
    for pair in args[1..].chunks_exact(2) {
        call.set(&pair[0], StoredValue::Text(pair[1].clone()));
    }
    ok()
}

pub(super) fn append(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let key = &args[1];
    let old = call.read::<Bytes>(key)?.cloned().unwrap_or_default();
    if old.len() + args[2].len() > MAX_STRING {
        return Err(Refusal::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    let new = Bytes::from([&old[..], &args[2][..]].concat());
    let length = new.len();
    *call.create::<Bytes>(key)? = new;
    call.changed(key);
    count(length)
}

pub(super) fn strlen(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(call.read::<Bytes>(&args[1])?.map_or(0, Bytes::len))
}

pub(super) fn incr(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    add(call, &args[1], 1)
}

pub(super) fn decr(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    add(call, &args[1], -1)
}

pub(super) fn incrby(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    add(call, &args[1], integer(&args[2])?)
}

pub(super) fn decrby(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let by = integer(&args[2])?.checked_neg();
    add(call, &args[1], by.ok_or(Refusal::of("ERR decrement would overflow"))?)
}

fn add(call: &mut CommandCall<'_>, key: &Bytes, by: i64) -> Reply {
    let old = match call.read::<Bytes>(key)? {
        None => 0,
        Some(text) => integer(text).map_err(|_| NOT_INTEGER)?,
    };
    let sum = old.checked_add(by).ok_or(Refusal::of("ERR increment or decrement would overflow"))?;
    *call.create::<Bytes>(key)? = sum.to_string().into();
    call.changed(key);
    Ok(RespValue::Integer(sum))
}
