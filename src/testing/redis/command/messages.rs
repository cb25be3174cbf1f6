//! Commands that publish messages, and commands that list subscriptions.

use super::{
    super::{glob, pubsub::PubSubTopic, refusal::Reply},
    call::CommandCall,
    reply::{array, bulk, count},
};
use crate::codec::RespValue;
use bytes::Bytes;

pub(super) fn publish(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(call.pubsub.publish(PubSubTopic::Channel, &args[1], &args[2]))
}

pub(super) fn spublish(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(call.pubsub.publish(PubSubTopic::Shard, &args[1], &args[2]))
}

pub(super) fn numsub(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let counted = |name: &Bytes| {
        let subscribers = call.pubsub.subscribers(PubSubTopic::Channel, name);
        [bulk(name), RespValue::Integer(subscribers as i64)]
    };
    Ok(RespValue::Array(args[2..].iter().flat_map(counted).collect()))
}

pub(super) fn channels(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let patterns = &args[2..];
    if patterns.len() > 1 {
        let name = String::from_utf8_lossy(&args[1]);
        return Err(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP."
        )
        .into());
    }
    let is_wanted = |name: &&Bytes| patterns.iter().all(|pattern| glob::matches(pattern, name));
    array(call.pubsub.channels().filter(is_wanted))
}
