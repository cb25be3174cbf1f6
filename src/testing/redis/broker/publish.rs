//! publish.lua

use super::{
    calls::{ScriptResult, argument, behind, bulk, entry, key, now_ms, number, run, string, text},
    topic::{CommonArguments, TopicMetadata, other_kind},
};
use crate::{codec::RespValue, testing::redis::script::ScriptContext};
use bytes::Bytes;

/// What is kept of a stream.
struct StreamLimits {
    messages: i64,
    bytes: i64,
    oldest: i64,
}

pub(super) fn publish(script: &mut ScriptContext<'_>) -> ScriptResult {
    let now = now_ms(script)?;
    let common = CommonArguments::of(script, now)?;
    let (meta, stream, id_key) = (key(script, 0)?, key(script, 2)?, script.keys().get(3).cloned());
    let (payload, age) = (argument(script, 7)?, argument(script, 10)?);
    let max_age = number(&age)?;
    let limits = StreamLimits {
        messages: number(&argument(script, 8)?)?,
        bytes: number(&argument(script, 9)?)?,
        oldest: now - max_age,
    };
    let mut topic = TopicMetadata::open(script, meta.clone())?;
    if topic.is_other_kind("messages") {
        return Err(other_kind());
    }
    if topic.epoch.is_none() || topic.is_rewound(&common.seen)? {
        topic.begin_epoch(&common.id);
    }

    if let Some(id_key) = &id_key
        && let Some(stored) = string(script, [b"GET", id_key])?
        && let Some((epoch, offset)) = String::from_utf8_lossy(&stored).split_once(':')
        && topic.is_valid(epoch, number(offset.as_bytes())?)
    {
        common.finish_read(script, &topic, "messages")?;
        let (epoch, offset) = (bulk(epoch.to_owned()), bulk(offset.to_owned()));
        return Ok(RespValue::Array(vec![1.into(), epoch, offset]));
    }

    if topic.run.as_ref() != Some(&common.run_id) && !topic.has_begun {
        topic.begin_epoch(&common.id);
    }
    topic.top += 1;
    let (epoch, offset) = (topic.epoch.clone().unwrap_or_default(), topic.top);
    let mut keep = common.keep.max(max_age);
    if let Some(id_key) = &id_key {
        let (position, window) = (format!("{epoch}:{offset}"), argument(script, 11)?);
        run(script, [b"SET", id_key, position.as_bytes(), b"PX", &window])?;
        keep = keep.max(number(&window)?);
    }
    let mut event = common.new_event(script, 'M', &topic)?;
    if topic.kind.is_none() {
        run(script, [b"UNLINK", &stream])?;
        topic.low_time = now;
    }
    let sum = topic.sum + payload.len() as i64;
    if limits.messages == 0 || payload.len() as i64 > limits.bytes {
        run(script, [b"UNLINK", &stream])?;
        (topic.low_sum, topic.low_time) = (sum, now);
    } else {
        let first = first_kept(script, &stream, &mut topic, &limits, sum, now)?;
        add(script, &stream, &topic, first, &payload, now)?;
        run(script, [b"PEXPIRE", &stream, &age])?;
    }
    let (sum, low_sum, low_time) = (text(sum), text(topic.low_sum), text(topic.low_time));
    run(script, [b"HSET", &meta, b"sum", &sum, b"low_sum", &low_sum, b"low_time", &low_time])?;
    topic.store(script, Some("messages"), &common.run_id)?;
    topic.keep(script, keep, now)?;
    event.extend_from_slice(&payload);
    common.publish(script, &event)?;
    Ok(RespValue::Array(vec![0.into(), bulk(epoch), bulk(text(offset))]))
}

/// Returns the offset of the first message that stays.
fn first_kept(
    script: &mut ScriptContext<'_>,
    stream: &Bytes,
    topic: &mut TopicMetadata,
    limits: &StreamLimits,
    sum: i64,
    now: i64,
) -> ScriptResult<i64> {
    let mut first = (topic.top - limits.messages + 1).max(1);
    if sum - topic.low_sum <= limits.bytes && topic.low_time >= limits.oldest {
        return Ok(first);
    }
    let (mut kept, mut last) = (None, topic.top);
    while first < last {
        let middle = i64::midpoint(first, last);
        let found = behind(script, stream, middle, 1).unwrap_or_default();
        let Some(found) = found.first() else {
            last = middle;
            continue;
        };
        let (at, fields) = entry(found)?;
        let (before, time) = (number(&fields[1])?, number(&fields[2])?);
        if sum - before <= limits.bytes && time >= limits.oldest {
            (kept, last) = (Some((before, time)), middle);
        } else {
            first = at + 1;
        }
    }
    (topic.low_sum, topic.low_time) = kept.unwrap_or((topic.sum, now));
    if kept.is_none() {
        run(script, [b"UNLINK", stream])?;
    }
    Ok(first)
}

fn add(
    script: &mut ScriptContext<'_>,
    stream: &[u8],
    topic: &TopicMetadata,
    first: i64,
    payload: &[u8],
    now: i64,
) -> ScriptResult<()> {
    let (id, min) = (format!("{}-0", topic.top), format!("{first}-0"));
    let (id, min) = (id.as_bytes(), min.as_bytes());
    let (before, time) = (text(topic.sum), text(now));
    let trimmed = [b"XADD", stream, b"MINID", b"=", min, id, b"p", payload, b"b", &before, b"t", &time];
    if run(script, trimmed).is_err() {
        run(script, [b"UNLINK", stream])?;
        run(script, [b"XADD", stream, id, b"p", payload, b"b", &before, b"t", &time])?;
    }
    Ok(())
}
