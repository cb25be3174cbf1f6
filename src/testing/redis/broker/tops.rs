//! tops.lua

use super::{
    calls::{ScriptResult, argument, bulk, integer, key, now_ms, number, run, string, text},
    topic::{CommonArguments, TopicMetadata, idle_life, last_sequence},
};
use crate::{codec::RespValue, testing::redis::script::ScriptContext};

pub(super) fn tops(script: &mut ScriptContext<'_>) -> ScriptResult {
    let now = now_ms(script)?;
    let (sequence, run_id, id) = (key(script, 0)?, argument(script, 0)?, argument(script, 1)?);
    let (keep, channel) = (number(&argument(script, 2)?)?, argument(script, 3)?);
    let (generation, _) = last_sequence(script, &sequence, &run_id, &id)?;
    let mut reply = vec![bulk(generation), RespValue::Null];
    for index in 0..(script.keys().len() - 1) / 2 {
        let part = |script: &ScriptContext<'_>, number: usize| argument(script, 4 + 4 * index + number);
        let [meta, map] = [key(script, 2 * index + 1)?, key(script, 2 * index + 2)?];
        let (name, seen) = (part(script, 0)?, (part(script, 1)?, part(script, 2)?));
        let mut topic = TopicMetadata::open(script, meta)?;
        let is_map = topic.kind.as_ref().is_some_and(|kind| kind == "map");
        let length = if is_map { integer(script, [b"HLEN", &map])? } else { 0 };
        if topic.epoch.is_none() || topic.length != length || topic.is_rewound(&seen)? {
            let (sequence, run_id, id) = (sequence.clone(), run_id.clone(), id.clone());
            let channel = channel.clone();
            let common = CommonArguments { sequence, run_id, id, keep, channel, name, seen, now };
            topic.begin_epoch(&part(script, 3)?);
            let event = common.new_event(script, 'E', &topic)?;
            common.publish(script, &event)?;
            topic.store(script, None, &common.run_id)?;
            if topic.length != length {
                run(script, [b"HSET", &topic.key, b"length", &text(length)])?;
            }
        }
        if length == 0 {
            topic.keep(script, idle_life(if is_map { "map" } else { "messages" }, keep), now)?;
        }
        reply.extend([bulk(text(topic.top)), bulk(topic.epochs)]);
    }
    reply[1] = bulk(string(script, [b"HGET", &sequence, b"number"])?.unwrap_or_default());
    Ok(RespValue::Array(reply))
}
