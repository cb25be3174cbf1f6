//! Commands that read streams.

use super::{
    super::{
        keyspace::{StreamId, StreamValue},
        pubsub::Protocol,
        refusal::{Refusal, Reply, SYNTAX},
    },
    call::{CommandCall, integer},
    reply::{bulk, count},
    stream_ids::{self, strict},
};
use crate::codec::RespValue;
use bytes::Bytes;

fn entry((id, fields): (&StreamId, &Vec<Bytes>)) -> RespValue {
    let fields = RespValue::Array(fields.iter().map(bulk).collect());
    RespValue::Array(vec![RespValue::Bulk(id.to_string().into()), fields])
}

pub(super) fn xrange(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let (start, end) = (stream_ids::start(&args[2])?, stream_ids::end(&args[3])?);
    let mut wanted = None;
    let mut options = args[4..].iter();
    while let Some(option) = options.next() {
        match (option.eq_ignore_ascii_case(b"COUNT"), options.next()) {
            (true, Some(number)) => wanted = Some(integer(number)?.max(0)),
            _ => return Err(SYNTAX),
        }
    }
    let Some(stream) = call.read::<StreamValue>(&args[1])? else { return Ok(RespValue::Array(Vec::new())) };
    if wanted == Some(0) {
        return Ok(RespValue::NullArray);
    }
    let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok()).unwrap_or(usize::MAX);
    if start > end {
        return Ok(RespValue::Array(Vec::new()));
    }
    Ok(RespValue::Array(stream.range(start..=end).take(wanted).map(entry).collect()))
}

pub(super) fn xlen(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(call.read::<StreamValue>(&args[1])?.map_or(0, StreamValue::len))
}

pub(super) fn xread(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let mut wanted = usize::MAX;
    let mut at = 1;
    loop {
        let option = args.get(at).ok_or(SYNTAX)?;
        match option.to_ascii_uppercase().as_slice() {
            b"COUNT" if at + 1 < args.len() => {
                let number = integer(&args[at + 1])?;
                wanted = usize::try_from(number).ok().filter(|number| *number > 0).unwrap_or(usize::MAX);
                at += 2;
            }
            b"BLOCK" => return Err(Refusal::of("ERR BLOCK is not supported by the simulated Redis")),
            b"STREAMS" if at + 1 < args.len() => break,
            _ => return Err(SYNTAX),
        }
    }
    let streams = &args[at + 1..];
    if !streams.len().is_multiple_of(2) {
        return Err(Refusal::of(
            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
        ));
    }
    let (keys, ids) = streams.split_at(streams.len() / 2);
    let mut positions = Vec::with_capacity(keys.len());
    for (key, id) in keys.iter().zip(ids) {
        let last = call.read::<StreamValue>(key)?.map_or(StreamId::MIN, |stream| stream.last);
        positions.push(if id[..] == *b"$" { last } else { strict(id, 0)? });
    }
    let mut found = Vec::new();
    for (key, position) in keys.iter().zip(positions) {
        let Some(stream) = call.read::<StreamValue>(key)? else { continue };
        let Some(start) = position.next() else { continue };
        let entries: Vec<_> = stream.range(start..).take(wanted).map(entry).collect();
        if !entries.is_empty() {
            found.push((bulk(key), RespValue::Array(entries)));
        }
    }
    if found.is_empty() {
        return Ok(RespValue::NullArray);
    }
    Ok(match call.protocol {
        Protocol::Resp3 => RespValue::Map(found),
        Protocol::Resp2 => RespValue::Array(
            found.into_iter().map(|pair| RespValue::Array(<[_; 2]>::from(pair).to_vec())).collect(),
        ),
    })
}
