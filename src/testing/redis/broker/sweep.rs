//! sweep.lua

use super::{
    calls::{ScriptResult, argument, integer, key, list, now_ms, number, run, string, text},
    map::{owner_of, removal, store_update},
    topic::{CommonArguments, TopicMetadata},
};
use crate::{codec::RespValue, testing::redis::script::ScriptContext};
use bytes::Bytes;

/// The entries of one topic that were removed.
struct TopicSweep {
    topic: TopicMetadata,
    map: Bytes,
    common: CommonArguments,
    changes: Vec<u8>,
}

impl TopicSweep {
    fn finish(mut self, script: &mut ScriptContext<'_>) -> ScriptResult<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        if self.topic.run.as_ref() != Some(&self.common.run_id) && !self.topic.has_begun {
            self.topic.begin_epoch(&self.common.id);
        }
        self.topic.top += 1;
        store_update(script, &mut self.topic, &self.common, &self.changes)
    }
}

/// Splits a member of the entries of a node into topic and key.
fn split(member: &Bytes) -> Option<(Bytes, Bytes)> {
    let colon = member.iter().position(|byte| *byte == b':')?;
    let length = usize::try_from(number(&member[..colon]).ok()?).ok()?;
    let rest = member.slice(colon + 1..);
    (rest.len() > length).then(|| (rest.slice(..length), rest.slice(length + 1..)))
}

pub(super) fn sweep(script: &mut ScriptContext<'_>) -> ScriptResult {
    let now = now_ms(script)?;
    let [owned, sequence, ended] = [key(script, 0)?, key(script, 1)?, key(script, 2)?];
    let owners = key(script, 3)?;
    let [run_id, id, channel] = [argument(script, 0)?, argument(script, 1)?, argument(script, 3)?];
    let keep = number(&argument(script, 2)?)?;
    let (node, most) = (argument(script, 4)?, number(&argument(script, 5)?)?);
    let [metas, maps] = [argument(script, 6)?, argument(script, 7)?];
    let (remembered, max_bytes) = (number(&argument(script, 8)?)?, number(&argument(script, 9)?)?);
    run(script, [b"ZADD", &ended, &text(now), &node])?;
    run(script, [b"ZREMRANGEBYSCORE", &ended, b"-inf", &text(now - remembered)])?;

    let mut sweep: Option<TopicSweep> = None;
    let mut bytes = 0;
    for (i, member) in list(script, [b"ZRANGE", &owned, b"0", &text(most - 1)])?.iter().enumerate() {
        let Some(member) = member.as_bytes() else { continue };
        let Some((name, key)) = split(member) else { continue };
        bytes += key.len() as i64 + 16;
        if i > 0 && bytes > max_bytes {
            break;
        }
        if sweep.as_ref().is_none_or(|sweep| sweep.common.name != name) {
            if let Some(sweep) = sweep.take() {
                sweep.finish(script)?;
            }
            let mut topic = TopicMetadata::open(script, [&metas[..], &name].concat().into())?;
            let map: Bytes = [&maps[..], &name].concat().into();
            let length = integer(script, [b"HLEN", &map])?;
            if topic.epoch.is_none() || topic.length != length {
                topic.begin_epoch(&id);
                topic.length = length;
            }
            let (sequence, run_id, id) = (sequence.clone(), run_id.clone(), id.clone());
            let (channel, seen) = (channel.clone(), (Bytes::new(), Bytes::new()));
            let common = CommonArguments { sequence, run_id, id, keep, channel, name, seen, now };
            sweep = Some(TopicSweep { topic, map, common, changes: Vec::new() });
        }
        let Some(sweep) = &mut sweep else { continue };
        let stored = string(script, [b"HGET", &sweep.map, &key])?;
        if stored.is_some_and(|entry| owner_of(&entry) == node) {
            run(script, [b"HDEL", &sweep.map, &key])?;
            sweep.topic.length -= 1;
            sweep.changes.extend(removal(&key));
        }
        run(script, [b"ZREM", &owned, member])?;
    }
    if let Some(sweep) = sweep {
        sweep.finish(script)?;
    }
    let left = integer(script, [b"ZCARD", &owned])?;
    if left == 0 {
        run(script, [b"SREM", &owners, &node])?;
    }
    Ok(RespValue::Integer(left))
}
