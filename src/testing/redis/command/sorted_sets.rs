//! Commands that change sorted sets, and lookups by member.

use super::{
    super::{
        keyspace::SortedSet,
        number::float,
        refusal::{NOT_FLOAT, Refusal, Reply, SYNTAX},
    },
    call::CommandCall,
    reply::count,
};
use crate::codec::RespValue;
use bytes::Bytes;

/// Options of `ZADD`, which are refused.
const OPTIONS: [&[u8]; 6] = [b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"];

pub(super) fn zadd(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    if OPTIONS.iter().any(|option| args[2].eq_ignore_ascii_case(option)) {
        return Err(Refusal::of("ERR options of ZADD are not supported by the simulated Redis"));
    }
    let (key, pairs) = (&args[1], &args[2..]);
    if !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let pairs: Vec<(f64, &Bytes)> = pairs
        .chunks_exact(2)
        .map(|pair| Ok((float(&pair[0]).ok_or(NOT_FLOAT)?, &pair[1])))
        .collect::<Result<_, Refusal>>()?;
    let set = call.create::<SortedSet>(key)?;
    let (mut added, mut is_changed) = (0, false);
    for (score, member) in pairs {
        let current = set.score(member);
        if current != Some(score) {
            set.set(member, score);
            is_changed = true;
        }
        added += usize::from(current.is_none());
    }
    if is_changed {
        call.changed(key);
    }
    count(added)
}

pub(super) fn zincrby(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let (key, member) = (&args[1], &args[3]);
    let by = float(&args[2]).ok_or(NOT_FLOAT)?;
    let current = call.read::<SortedSet>(key)?.and_then(|set| set.score(member));
    let score = current.map_or(by, |current| current + by);
    if score.is_nan() {
        return Err(Refusal::of("ERR resulting score is not a number (NaN)"));
    }
    if current != Some(score) {
        call.create::<SortedSet>(key)?.set(member, score);
        call.changed(key);
    }
    Ok(RespValue::Double(score))
}

pub(super) fn zrem(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let Some(set) = call.write::<SortedSet>(&args[1])? else { return count(0) };
    let removed = args[2..].iter().filter(|member| set.remove(member)).count();
    if removed > 0 {
        call.changed(&args[1]);
    }
    count(removed)
}

pub(super) fn zcard(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(call.read::<SortedSet>(&args[1])?.map_or(0, SortedSet::len))
}

pub(super) fn zscore(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let score = call.read::<SortedSet>(&args[1])?.and_then(|set| set.score(&args[2]));
    Ok(score.map_or(RespValue::Null, RespValue::Double))
}
