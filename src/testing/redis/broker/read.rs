//! read.lua

use super::{
    calls::{ScriptResult, argument, behind, bulk, entry, key, list, now_ms, number, run, text},
    topic::{CommonArguments, TopicMetadata, other_kind},
};
use crate::{codec::RespValue, testing::redis::script::ScriptContext};

pub(super) fn read(script: &mut ScriptContext<'_>) -> ScriptResult {
    let now = now_ms(script)?;
    let common = CommonArguments::of(script, now)?;
    let (meta, stream, after) = (key(script, 0)?, key(script, 2)?, argument(script, 7)?);
    let [max_messages, max_bytes] = [number(&argument(script, 8)?)?, number(&argument(script, 9)?)?];
    let mut topic = TopicMetadata::open(script, meta)?;
    if topic.is_other_kind("messages") {
        return Err(other_kind());
    }
    if topic.kind.is_none() {
        run(script, [b"UNLINK", &stream])?;
    }
    if topic.epoch.is_none() || topic.is_rewound(&common.seen)? {
        topic.begin_epoch(&common.id);
    }
    common.finish_read(script, &topic, "messages")?;

    let oldest = list(script, [b"XRANGE", &stream, b"-", b"+", b"COUNT", b"1"])?;
    let oldest = oldest.first().map(entry).transpose()?.map_or(topic.top + 1, |(oldest, _)| oldest);
    let mut reply = vec![bulk(text(topic.top)), bulk(topic.epochs), bulk(text(oldest))];
    let (mut bytes, mut messages) = (0, 0);
    let mut after = if after[..] == *b"-" { (topic.top - max_messages).max(0) } else { number(&after)? };
    while messages < max_messages {
        let part = (max_messages - messages).min(16);
        let found = behind(script, &stream, after + 1, part)?;
        for found in &found {
            let (at, [payload, ..]) = entry(found)?;
            after = at;
            bytes += payload.len() as i64;
            if messages > 0 && bytes > max_bytes {
                return Ok(RespValue::Array(reply));
            }
            messages += 1;
            reply.extend([bulk(text(after)), bulk(payload)]);
        }
        if (found.len() as i64) < part {
            break;
        }
    }
    Ok(RespValue::Array(reply))
}
