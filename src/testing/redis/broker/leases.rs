//! renew.lua and lost.lua

use super::calls::{ScriptResult, argument, key, list, now_ms, number, run, string, text};
use crate::{codec::RespValue, testing::redis::script::ScriptContext};
use bytes::Bytes;

pub(super) fn renew(script: &mut ScriptContext<'_>) -> ScriptResult {
    let [leases, incarnations, lost] = [key(script, 0)?, key(script, 1)?, key(script, 2)?];
    let [node, name, life] = [argument(script, 0)?, argument(script, 1)?, argument(script, 2)?];
    let kind = argument(script, 3)?;
    let now = now_ms(script)?;
    let current = string(script, [b"HGET", &incarnations, &name])?;
    let is_current = current.as_ref() == Some(&node);
    let is_alive = match &current {
        Some(current) => {
            let ends = string(script, [b"ZSCORE", &leases, current])?;
            ends.map_or(Ok(0), |ends| number(&ends))? > now
        }
        None => false,
    };
    let is_taken = kind[..] != *b"begin" && !is_current && is_alive;
    if kind[..] != *b"renew" && !is_taken {
        if let Some(current) = current.filter(|current| *current != node) {
            run(script, [b"ZREM", &leases, &current])?;
            run(script, [b"SADD", &lost, &current])?;
        }
        run(script, [b"HSET", &incarnations, &name, &node])?;
        run(script, [b"SREM", &lost, &node])?;
    } else if !is_current || !is_alive {
        if kind[..] == *b"renew" {
            run(script, [b"ZREM", &leases, &node])?;
            run(script, [b"SADD", &lost, &node])?;
        }
        return Ok(RespValue::Integer(if is_taken { -1 } else { 0 }));
    }
    run(script, [b"ZADD", &leases, &text(now + number(&life)?), &node])?;
    Ok(RespValue::Integer(1))
}

pub(super) fn lost(script: &mut ScriptContext<'_>) -> ScriptResult {
    let now = now_ms(script)?;
    let leases = key(script, 0)?;
    let expired = list(script, [b"ZRANGEBYSCORE", &leases, b"-inf", &text(now)])?;
    for node in expired.iter().filter_map(RespValue::as_bytes) {
        finish(script, node)?;
    }
    let is_end = argument(script, 0)?[..] == *b"end";
    for index in 1..script.arguments().len() {
        let node = argument(script, index)?;
        if is_end || string(script, [b"ZSCORE", &leases, &node])?.is_none() {
            finish(script, &node)?;
        }
    }
    let lost = key(script, 2)?;
    run(script, [b"SMEMBERS", &lost])
}

fn finish(script: &mut ScriptContext<'_>, node: &Bytes) -> ScriptResult<()> {
    let [leases, incarnations, lost] = [key(script, 0)?, key(script, 1)?, key(script, 2)?];
    run(script, [b"ZREM", &leases, node])?;
    run(script, [b"SADD", &lost, node])?;
    let name = node.split(|byte| *byte == b':').next().unwrap_or_default();
    if string(script, [b"HGET", &incarnations, name])?.as_ref() == Some(node) {
        run(script, [b"HDEL", &incarnations, name])?;
    }
    Ok(())
}
