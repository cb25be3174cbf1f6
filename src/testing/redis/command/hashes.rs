//! Commands for hashes.

use super::{
    super::{
        keyspace::Hash,
        refusal::{Refusal, Reply},
    },
    call::{CommandCall, integer},
    reply::{bulk, bulk_or_null, count, flag},
};
use crate::codec::RespValue;
use bytes::Bytes;

pub(super) fn hset(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    if !args.len().is_multiple_of(2) {
        return Err(Refusal::arity("hset"));
    }
    let hash = call.create::<Hash>(&args[1])?;
    let added = args[2..].chunks_exact(2).filter(|pair| hash.set(&pair[0], pair[1].clone())).count();
    call.changed(&args[1]);
    count(added)
}

pub(super) fn hsetnx(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let is_set = call.read::<Hash>(&args[1])?.is_some_and(|hash| hash.get(&args[2]).is_some());
    if !is_set {
        call.create::<Hash>(&args[1])?.set(&args[2], args[3].clone());
        call.changed(&args[1]);
    }
    flag(!is_set)
}

pub(super) fn hget(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let hash = call.read::<Hash>(&args[1])?;
    Ok(bulk_or_null(hash.and_then(|hash| hash.get(&args[2]))))
}

pub(super) fn hmget(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let hash = call.read::<Hash>(&args[1])?;
    let values = args[2..].iter().map(|field| bulk_or_null(hash.and_then(|hash| hash.get(field))));
    Ok(RespValue::Array(values.collect()))
}

pub(super) fn hexists(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    flag(call.read::<Hash>(&args[1])?.is_some_and(|hash| hash.get(&args[2]).is_some()))
}

pub(super) fn hdel(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let Some(hash) = call.write::<Hash>(&args[1])? else { return count(0) };
    let removed = args[2..].iter().filter(|field| hash.remove(field)).count();
    if removed > 0 {
        call.changed(&args[1]);
    }
    count(removed)
}

pub(super) fn hlen(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(call.read::<Hash>(&args[1])?.map_or(0, Hash::len))
}

pub(super) fn hgetall(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let hash = call.read::<Hash>(&args[1])?;
    let pairs = hash.into_iter().flat_map(Hash::iter).map(|(field, value)| (bulk(field), bulk(value)));
    Ok(RespValue::Map(pairs.collect()))
}

pub(super) fn hincrby(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let by = integer(&args[3])?;
    let old = match call.read::<Hash>(&args[1])?.and_then(|hash| hash.get(&args[2])) {
        None => 0,
        Some(text) => integer(text).map_err(|_| Refusal::of("ERR hash value is not an integer"))?,
    };
    let sum = old.checked_add(by).ok_or(Refusal::of("ERR increment or decrement would overflow"))?;
    call.create::<Hash>(&args[1])?.set(&args[2], sum.to_string().into());
    call.changed(&args[1]);
    Ok(RespValue::Integer(sum))
}
