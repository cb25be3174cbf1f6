//! snapshot.lua

use super::{
    calls::{ScriptResult, argument, bulk, integer, key, list, now_ms, number, run, text},
    topic::{CommonArguments, TopicMetadata, other_kind},
};
use crate::{codec::RespValue, testing::redis::script::ScriptContext};

pub(super) fn snapshot(script: &mut ScriptContext<'_>) -> ScriptResult {
    let now = now_ms(script)?;
    let common = CommonArguments::of(script, now)?;
    let [meta, map] = [key(script, 0)?, key(script, 2)?];
    let mut topic = TopicMetadata::open(script, meta.clone())?;
    if topic.is_other_kind("map") {
        return Err(other_kind());
    }
    let length = integer(script, [b"HLEN", &map])?;
    if topic.epoch.is_none() || topic.length != length || topic.is_rewound(&common.seen)? {
        topic.begin_epoch(&common.id);
        topic.length = length;
        run(script, [b"HSET", &meta, b"length", &text(length)])?;
    }
    common.finish_read(script, &topic, "map")?;
    let is_larger = length > number(&argument(script, 7)?)?;
    let strings = if is_larger { Vec::new() } else { list(script, [b"HGETALL", &map])? };
    let bytes: usize = strings.iter().filter_map(RespValue::as_bytes).map(|string| string.len() + 16).sum();
    let mut reply = vec![bulk(text(topic.top)), bulk(topic.epochs)];
    if is_larger || bytes as i64 > number(&argument(script, 8)?)? {
        reply.push(length.into());
    } else {
        reply.extend(strings);
    }
    Ok(RespValue::Array(reply))
}
