//! Ranges of sorted sets, by rank and by score.

use super::{
    super::{
        keyspace::SortedSet,
        number::float,
        pubsub::Protocol,
        refusal::{Refusal, Reply, SYNTAX},
    },
    call::{CommandCall, integer, range},
    reply::{bulk, count},
};
use crate::codec::RespValue;
use bytes::Bytes;

/// Scores between two bounds, each of which may be exclusive.
#[derive(Debug, Clone, Copy)]
struct Scores {
    min: (f64, bool),
    max: (f64, bool),
}

impl Scores {
    fn parse(min: &[u8], max: &[u8]) -> Result<Self, Refusal> {
        let bound = |text: &[u8]| {
            let (text, is_exclusive) = match text.strip_prefix(b"(") {
                Some(text) => (text, true),
                None => (text, false),
            };
            let number = if text.is_empty() { Some(0.0) } else { float(text) };
            let number = number.ok_or(Refusal::of("ERR min or max is not a float"))?;
            Ok::<_, Refusal>((number, is_exclusive))
        };
        Ok(Scores { min: bound(min)?, max: bound(max)? })
    }

    fn contain(self, score: f64) -> bool {
        let ((min, above), (max, below)) = (self.min, self.max);
        (if above { score > min } else { score >= min }) && (if below { score < max } else { score <= max })
    }
}

/// The options of `ZRANGE` and of its older form `ZRANGEBYSCORE`.
#[derive(Debug, Default)]
struct RangeOptions {
    with_scores: bool,
    limit: Option<(i64, i64)>,
    reverse: bool,
    by_score: bool,
}

impl RangeOptions {
    /// Parses the options. Those of the newer form are accepted if `is_general`.
    fn parse(options: &[Bytes], is_general: bool) -> Result<Self, Refusal> {
        let mut parsed = RangeOptions::default();
        let mut at = 0;
        while let Some(option) = options.get(at) {
            match option.to_ascii_uppercase().as_slice() {
                b"WITHSCORES" => parsed.with_scores = true,
                b"LIMIT" if at + 2 < options.len() => {
                    parsed.limit = Some((integer(&options[at + 1])?, integer(&options[at + 2])?));
                    at += 2;
                }
                b"REV" if is_general => parsed.reverse = true,
                b"BYSCORE" if is_general => parsed.by_score = true,
                b"BYLEX" if is_general => {
                    return Err(Refusal::of("ERR BYLEX is not supported by the simulated Redis"));
                }
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        Ok(parsed)
    }
}

pub(super) fn zrange(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let options = RangeOptions::parse(&args[4..], true)?;
    if options.by_score {
        return by_score(call, args, &options);
    }
    by_rank(call, args, &options)
}

pub(super) fn zrangebyscore(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let options = RangeOptions::parse(&args[4..], false)?;
    by_score(call, args, &options)
}

fn by_rank(call: &mut CommandCall<'_>, args: &[Bytes], options: &RangeOptions) -> Reply {
    if options.limit.is_some_and(|(_, limit)| limit != -1) {
        return Err(Refusal::of(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    let (start, end) = (integer(&args[2])?, integer(&args[3])?);
    let protocol = call.protocol;
    let Some(set) = call.read::<SortedSet>(&args[1])? else { return Ok(RespValue::Array(Vec::new())) };
    let range = range(start, end, set.len());
    let (skipped, length) = (range.start, range.len());
    let found: Vec<_> = if options.reverse {
        set.iter().rev().skip(skipped).take(length).collect()
    } else {
        set.iter().skip(skipped).take(length).collect()
    };
    Ok(members(&found, options.with_scores, protocol))
}

fn by_score(call: &mut CommandCall<'_>, args: &[Bytes], options: &RangeOptions) -> Reply {
    let (min, max) = if options.reverse { (&args[3], &args[2]) } else { (&args[2], &args[3]) };
    let scores = Scores::parse(min, max)?;
    let protocol = call.protocol;
    let Some(set) = call.read::<SortedSet>(&args[1])? else { return Ok(RespValue::Array(Vec::new())) };
    let mut found: Vec<_> = set.iter().filter(|(_, score)| scores.contain(*score)).collect();
    if options.reverse {
        found.reverse();
    }
    if let Some((offset, limit)) = options.limit {
        // A negative offset finds nothing, and a negative limit is none.
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        found = found.into_iter().skip(offset).take(limit).collect();
    }
    Ok(members(&found, options.with_scores, protocol))
}

fn members(found: &[(&Bytes, f64)], with_scores: bool, protocol: Protocol) -> RespValue {
    let items = found.iter().map(|(member, score)| (bulk(member), RespValue::Double(*score)));
    RespValue::Array(match (with_scores, protocol) {
        (false, _) => items.map(|(member, _)| member).collect(),
        (true, Protocol::Resp2) => items.flat_map(<[_; 2]>::from).collect(),
        (true, Protocol::Resp3) => {
            items.map(|pair| RespValue::Array(<[_; 2]>::from(pair).to_vec())).collect()
        }
    })
}

pub(super) fn zremrangebyscore(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let scores = Scores::parse(&args[2], &args[3])?;
    let Some(set) = call.write::<SortedSet>(&args[1])? else { return count(0) };
    let found = set.iter().filter(|(_, score)| scores.contain(*score)).map(|(member, _)| member.clone());
    let found: Vec<Bytes> = found.collect();
    for member in &found {
        set.remove(member);
    }
    if !found.is_empty() {
        call.changed(&args[1]);
    }
    count(found.len())
}
