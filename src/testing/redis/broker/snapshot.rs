//! snapshot.lua

use super::{
    calls::{ScriptResult, bulk, integer, key, list, now_ms, run, text},
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
    let mut reply = vec![bulk(text(topic.top)), bulk(topic.epochs)];
    reply.extend(list(script, [b"HGETALL", &map])?);
    Ok(RespValue::Array(reply))
}
