//! Subscriptions of a connection.

use super::super::{
    pubsub::{ClientId, Protocol, PubSubTopic},
    refusal::{Refusal, Reply},
    state::State,
};
use crate::codec::RespValue;
use bytes::Bytes;

/// Returns whether a connection may only run the commands for subscribers: with RESP2, a reply
/// could be taken for a message.
pub(super) fn has_resp2_subscriptions(state: &State, client: ClientId) -> bool {
    let pubsub = &state.process.pubsub;
    pubsub.is_subscribed(client) && pubsub.protocol(client) == Protocol::Resp2
}

/// Replies to `PING` in the form of a message.
pub(super) fn ping(args: &[Bytes]) -> Reply {
    let message = match args {
        [_] => Bytes::new(),
        [_, message] => message.clone(),
        _ => return Err(Refusal::arity("ping")),
    };
    let pong = RespValue::Bulk(Bytes::from_static(b"pong"));
    Ok(RespValue::Array(vec![pong, RespValue::Bulk(message)]))
}

pub(super) fn subscribe(state: &mut State, client: ClientId, topic: PubSubTopic, names: &[Bytes]) {
    for name in names {
        state.process.pubsub.subscribe(client, topic, name);
    }
}

pub(super) fn unsubscribe(state: &mut State, client: ClientId, topic: PubSubTopic, names: &[Bytes]) {
    state.process.pubsub.unsubscribe(client, topic, names);
}
