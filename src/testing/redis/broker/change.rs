//! change.lua

use super::{
    calls::{ScriptResult, argument, bulk, integer, key, now_ms, number, run, string, text},
    map::{has_lost_entries, owned_member, owner_of, removal, remove_owned, store_update},
    topic::{CommonArguments, TopicMetadata, other_kind},
};
use crate::{codec::RespValue, testing::redis::script::ScriptContext};
use bytes::Bytes;
use std::collections::BTreeMap;

pub(super) fn change(script: &mut ScriptContext<'_>) -> ScriptResult {
    let now = now_ms(script)?;
    let common = CommonArguments::of(script, now)?;
    let [meta, map, ended] = [key(script, 0)?, key(script, 2)?, key(script, 3)?];
    let (owners, owned) = (key(script, 4)?, argument(script, 9)?);
    let (owner, max_entries) = (argument(script, 7)?, number(&argument(script, 8)?)?);
    let mut topic = TopicMetadata::open(script, meta.clone())?;
    if topic.is_other_kind("map") {
        return Err(other_kind());
    }
    if !owner.is_empty() && string(script, [b"ZSCORE", &ended, &owner])?.is_some() {
        return Err(RespValue::Error("LEASEENDED the lease of the node has ended".into()));
    }
    if !owner.is_empty() && has_lost_entries(script, &owners, &owned, &owner)? {
        return Err(RespValue::Error("LEASEENDED the list of the entries of the node was lost".into()));
    }
    let length = integer(script, [b"HLEN", &map])?;
    if topic.epoch.is_none() || topic.length != length || topic.is_rewound(&common.seen)? {
        topic.begin_epoch(&common.id);
    }

    let arguments = script.arguments().get(10..).unwrap_or_default().to_vec();
    let (mut made, mut grown) = (Vec::new(), length);
    let mut entries: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
    for change in arguments.chunks_exact(4) {
        let [kind, key, _, condition] = [&change[0], &change[1], &change[2], &change[3]];
        let stored = match entries.get(key) {
            Some(stored) => stored.clone(),
            None => string(script, [b"HGET", &map, key])?,
        };
        let mut is_made = condition.is_empty() || *condition == position_of(stored.as_ref());
        let is_set = kind[..] == *b"=";
        if is_set {
            is_made = is_made && (stored.is_some() || grown < max_entries);
            grown += i64::from(is_made && stored.is_none());
        } else {
            is_made = is_made && stored.is_some();
            grown -= i64::from(is_made);
        }
        made.push(is_made);
        if is_made {
            let entry = [b"0 0 ", &owner[..], b"\n"].concat();
            entries.insert(key.clone(), is_set.then(|| entry.into()));
        }
    }

    topic.length = grown;
    if !made.contains(&true) {
        if topic.has_begun {
            run(script, [b"HSET", &meta, b"length", &text(length)])?;
        }
        common.finish_read(script, &topic, "map")?;
    } else {
        if topic.run.as_ref() != Some(&common.run_id) && !topic.has_begun {
            topic.begin_epoch(&common.id);
        }
        topic.top += 1;
        let changes: Vec<_> = arguments.chunks_exact(4).zip(&made).filter(|(_, made)| **made).collect();
        let mut content = Vec::new();
        for (change, _) in changes {
            content.extend(apply(script, &topic, &common.name, &map, &owner, change)?);
        }
        store_update(script, &mut topic, &common, &content)?;
    }
    let mut reply = vec![bulk(topic.epoch.clone().unwrap_or_default()), bulk(text(topic.top))];
    reply.extend(made.into_iter().map(|made| i64::from(made).into()));
    Ok(RespValue::Array(reply))
}

/// Makes a change, and returns the content of its event.
fn apply(
    script: &mut ScriptContext<'_>,
    topic: &TopicMetadata,
    name: &[u8],
    map: &[u8],
    owner: &[u8],
    change: &[Bytes],
) -> ScriptResult<Vec<u8>> {
    let (owners, owned) = (key(script, 4)?, argument(script, 9)?);
    let (is_set, key, value) = (change[0][..] == *b"=", &change[1], &change[2]);
    let stored = string(script, [b"HGET", map, key])?;
    let before = stored.as_ref().map_or(&b""[..], |entry| owner_of(entry));
    let content = if is_set {
        let begin = format!("{} {} ", topic.epoch.as_deref().unwrap_or("0"), topic.top);
        run(script, [b"HSET", map, key, &[begin.as_bytes(), owner, b"\n", value].concat()])?;
        let head = format!("= {} {} {}\n", key.len(), value.len(), owner.len());
        [head.as_bytes(), key, value, owner].concat()
    } else {
        run(script, [b"HDEL", map, key])?;
        removal(key)
    };
    let member = owned_member(name, key);
    if !before.is_empty() && (!is_set || before != owner) {
        remove_owned(script, &owners, &owned, before, &member)?;
    }
    if is_set && !owner.is_empty() && before != owner {
        run(script, [b"ZADD", &[&owned[..], owner].concat(), b"0", &member])?;
        run(script, [b"SADD", &owners, owner])?;
    }
    Ok(content)
}

/// Returns the condition that holds for an entry: its position, or that it is absent.
fn position_of(entry: Option<&Bytes>) -> Bytes {
    let Some(entry) = entry else { return "!".into() };
    let mut spaces = entry.iter().enumerate().filter(|(_, byte)| **byte == b' ').map(|(at, _)| at);
    spaces.nth(1).map_or_else(Bytes::new, |end| entry.slice(..end))
}
