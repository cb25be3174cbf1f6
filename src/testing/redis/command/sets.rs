//! Commands for sets.

use super::{
    super::{keyspace::Set, refusal::Reply},
    call::CommandCall,
    reply::{bulk, count, flag},
};
use crate::codec::RespValue;
use bytes::Bytes;

pub(super) fn sadd(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let set = call.create::<Set>(&args[1])?;
    let added = args[2..].iter().filter(|member| set.insert((*member).clone())).count();
    if added > 0 {
        call.changed(&args[1]);
    }
    count(added)
}

pub(super) fn srem(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let Some(set) = call.write::<Set>(&args[1])? else { return count(0) };
    let removed = args[2..].iter().filter(|member| set.remove(*member)).count();
    if removed > 0 {
        call.changed(&args[1]);
    }
    count(removed)
}

pub(super) fn smembers(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let set = call.read::<Set>(&args[1])?;
    Ok(RespValue::Set(set.into_iter().flatten().map(bulk).collect()))
}

pub(super) fn scard(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(call.read::<Set>(&args[1])?.map_or(0, Set::len))
}

pub(super) fn sismember(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    flag(call.read::<Set>(&args[1])?.is_some_and(|set| set.contains(&args[2])))
}
