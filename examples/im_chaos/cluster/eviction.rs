//! Makes Redis evict keys, as if its memory was full.

use super::Cluster;
use netwheel::{
    codec::RespValue,
    prelude::*,
    redis::{RedisClient, RedisCommand},
};
use std::time::Duration;

/// Bytes by which the limit falls at a time.
const STEP: u64 = 4096;
/// The largest number of steps.
const MAX_STEPS: u32 = 5000;

impl Cluster {
    /// Lowers the limit of the memory of Redis until half of the keys were evicted, whichever they
    /// are. Then removes the limit. Returns how many keys were evicted.
    ///
    /// # Errors
    /// If Redis cannot be reached, or evicts nothing.
    pub(crate) fn evict_keys(&self) -> Result<u64> {
        let node = self.nodes.first().filter(|_| self.redis.is_some()).ok_or("there is no Redis")?;
        let client = RedisClient::builder(&self.group, node.redis()).connect()?;
        set(&client, "maxmemory-policy", "allkeys-random")?;
        let mut limit = number(&client, "memory", "used_memory")?;
        let before = number(&client, "stats", "evicted_keys")?;
        let RespValue::Integer(keys) = call(&client, RedisCommand::new("DBSIZE"))? else {
            return Err("DBSIZE has not returned a number".into());
        };
        let goal = keys.unsigned_abs() / 2;
        let mut evicted = 0;
        for _ in 0..MAX_STEPS {
            limit = limit.min(number(&client, "memory", "used_memory")?).saturating_sub(STEP);
            set(&client, "maxmemory", &limit.to_string())?;
            evicted = number(&client, "stats", "evicted_keys")? - before;
            if evicted >= goal {
                break;
            }
        }
        set(&client, "maxmemory", "0")?;
        client.close();
        if evicted >= goal { Ok(evicted) } else { Err("Redis has not evicted half of its keys".into()) }
    }
}

fn call(client: &RedisClient, command: RedisCommand) -> Result<RespValue> {
    client.call(command).wait_timeout(Duration::from_secs(10)).map_err(|_| "no answer of Redis")?
}

fn set(client: &RedisClient, name: &'static str, value: &str) -> Result {
    call(client, RedisCommand::new("CONFIG").arg("SET").arg(name).arg(value.to_owned())).map(drop)
}

/// Returns a number of a section of `INFO`.
fn number(client: &RedisClient, section: &'static str, name: &str) -> Result<u64> {
    let text = match call(client, RedisCommand::new("INFO").arg(section))? {
        RespValue::Bulk(text) => text,
        RespValue::Verbatim { text, .. } => text,
        _ => return Err("INFO has not returned a text".into()),
    };
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let value = lines.find(|(found, _)| *found == name).and_then(|(_, value)| value.trim().parse().ok());
    value.ok_or_else(|| Error::other(format!("INFO has no {name}")))
}
