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

/// The options of `ZADD`.
#[derive(Debug, Default)]
struct AddOptions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    /// Whether changed members are counted too.
    ch: bool,
    incr: bool,
}

impl AddOptions {
    /// Returns the options and the number of arguments that they take.
    fn parse(args: &[Bytes]) -> (Self, usize) {
        let mut options = AddOptions::default();
        for (n, arg) in args.iter().enumerate() {
            match arg.to_ascii_uppercase().as_slice() {
                b"NX" => options.nx = true,
                b"XX" => options.xx = true,
                b"GT" => options.gt = true,
                b"LT" => options.lt = true,
                b"CH" => options.ch = true,
                b"INCR" => options.incr = true,
                _ => return (options, n),
            }
        }
        (options, args.len())
    }

    fn check(&self, pairs: usize) -> Result<(), Refusal> {
        if self.nx && self.xx {
            return Err(Refusal::of("ERR XX and NX options at the same time are not compatible"));
        }
        if (self.nx && (self.gt || self.lt)) || (self.gt && self.lt) {
            return Err(Refusal::of("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if self.incr && pairs > 1 {
            return Err(Refusal::of("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }
}

/// What became of a member.
enum Added {
    Refused,
    New(f64),
    Changed(f64),
    Same(f64),
}

fn add_one(set: &mut SortedSet, options: &AddOptions, member: &Bytes, given: f64) -> Result<Added, Refusal> {
    let Some(current) = set.score(member) else {
        if options.xx {
            return Ok(Added::Refused);
        }
        set.set(member, given);
        return Ok(Added::New(given));
    };
    if options.nx {
        return Ok(Added::Refused);
    }
    let score = if options.incr { current + given } else { given };
    if score.is_nan() {
        return Err(Refusal::of("ERR resulting score is not a number (NaN)"));
    }
    if (options.lt && score >= current) || (options.gt && score <= current) {
        return Ok(Added::Refused);
    }
    if score == current {
        return Ok(Added::Same(score));
    }
    set.set(member, score);
    Ok(Added::Changed(score))
}

pub(super) fn zadd(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let (options, taken) = AddOptions::parse(&args[2..]);
    let pairs = &args[2 + taken..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    options.check(pairs.len() / 2)?;
    add(call, &args[1], &options, pairs)
}

pub(super) fn zincrby(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let options = AddOptions { incr: true, ..AddOptions::default() };
    add(call, &args[1], &options, &args[2..])
}

fn add(call: &mut CommandCall<'_>, key: &Bytes, options: &AddOptions, pairs: &[Bytes]) -> Reply {
    let pairs: Vec<(f64, &Bytes)> = pairs
        .chunks_exact(2)
        .map(|pair| Ok((float(&pair[0]).ok_or(NOT_FLOAT)?, &pair[1])))
        .collect::<Result<_, Refusal>>()?;
    let absent = if options.incr { RespValue::Null } else { RespValue::Integer(0) };
    if call.read::<SortedSet>(key)?.is_none() && options.xx {
        return Ok(absent);
    }
    let set = call.create::<SortedSet>(key)?;
    let (mut added, mut changed, mut result) = (0, 0, None);
    let mut failure = None;
    for (score, member) in pairs {
        match add_one(set, options, member, score) {
            Ok(Added::Refused) => {}
            Ok(Added::New(score)) => (added, result) = (added + 1, Some(score)),
            Ok(Added::Changed(score)) => (changed, result) = (changed + 1, Some(score)),
            Ok(Added::Same(score)) => result = Some(score),
            Err(refusal) => {
                failure = Some(refusal);
                break;
            }
        }
    }
    if added + changed > 0 {
        call.changed(key);
    }
    if let Some(refusal) = failure {
        return Err(refusal);
    }
    if options.incr {
        return Ok(result.map_or(RespValue::Null, RespValue::Double));
    }
    count(added + if options.ch { changed } else { 0 })
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
