//! map.lua: entries of maps, and their owners.

use super::{
    calls::{ScriptResult, integer, run, text},
    topic::{CommonArguments, TopicMetadata, idle_life},
};
use crate::testing::redis::script::ScriptContext;

/// Returns the owner of a stored entry.
pub(super) fn owner_of(entry: &[u8]) -> &[u8] {
    let head = entry.split(|byte| *byte == b'\n').next().unwrap_or_default();
    head.rsplit(|byte| *byte == b' ').next().unwrap_or_default()
}

pub(super) fn owned_member(name: &[u8], key: &[u8]) -> Vec<u8> {
    [name.len().to_string().as_bytes(), b":", name, b" ", key].concat()
}

pub(super) fn remove_owned(
    script: &mut ScriptContext<'_>,
    owners: &[u8],
    owned: &[u8],
    node: &[u8],
    member: &[u8],
) -> ScriptResult<()> {
    let owned = [owned, node].concat();
    run(script, [b"ZREM", &owned, member])?;
    if integer(script, [b"ZCARD", &owned])? == 0 {
        run(script, [b"SREM", owners, node])?;
    }
    Ok(())
}

/// Returns whether the entries of a node are not known any more.
pub(super) fn has_lost_entries(
    script: &mut ScriptContext<'_>,
    owners: &[u8],
    owned: &[u8],
    node: &[u8],
) -> ScriptResult<bool> {
    Ok(integer(script, [b"SISMEMBER", owners, node])? == 1
        && integer(script, [b"ZCARD", &[owned, node].concat()])? == 0)
}

/// Returns the content of an event for a removal.
pub(super) fn removal(key: &[u8]) -> Vec<u8> {
    [format!("- {} 0 0\n", key.len()).as_bytes(), key].concat()
}

/// Stores the end of an update, and publishes it.
pub(super) fn store_update(
    script: &mut ScriptContext<'_>,
    topic: &mut TopicMetadata,
    common: &CommonArguments,
    changes: &[u8],
) -> ScriptResult<()> {
    let mut event = common.new_event(script, 'C', topic)?;
    topic.store(script, Some("map"), &common.run_id)?;
    run(script, [b"HSET", &topic.key, b"length", &text(topic.length)])?;
    if topic.length > 0 {
        run(script, [b"HSET", &topic.key, b"until", b"0"])?;
        run(script, [b"PERSIST", &topic.key])?;
    } else {
        topic.keep(script, idle_life("map", common.keep), common.now)?;
    }
    event.extend_from_slice(changes);
    common.publish(script, &event)
}
