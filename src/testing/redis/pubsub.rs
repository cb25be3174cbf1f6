//! `PubSub`: subscriptions, and the replies and messages that connections have not sent yet.
//!
//! Invariant: everything that a connection receives passes through its outbox. So a message and a
//! reply arrive in the order in which the server has produced them.

use super::{glob, number::float_text};
use crate::codec::RespValue;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The number of a connection, as `CLIENT ID` replies it.
pub(super) type ClientId = i64;

/// The version of the protocol that a client has selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// The most values that wait for one connection. Redis has a limit for subscribers, too
/// (`client-output-buffer-limit`), and also closes the connection.
pub(super) const MAX_OUTBOX: usize = 100_000;

/// The kinds of subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PubSubTopic {
    Channel,
    Pattern,
    Shard,
}

impl PubSubTopic {
    /// Returns the beginning of the names of its commands and messages.
    fn prefix(self) -> &'static str {
        match self {
            PubSubTopic::Channel => "",
            PubSubTopic::Pattern => "p",
            PubSubTopic::Shard => "s",
        }
    }
}

#[derive(Debug, Default)]
struct Outbox {
    protocol: Protocol,
    values: Vec<RespValue>,
    is_overfull: bool,
}

#[derive(Debug, Default)]
pub(super) struct PubSub {
    subscribers: BTreeMap<(PubSubTopic, Bytes), BTreeSet<ClientId>>,
    subscriptions: BTreeMap<ClientId, BTreeSet<(PubSubTopic, Bytes)>>,
    outboxes: BTreeMap<ClientId, Outbox>,
    /// Connections that have received something since the last [`take_woken`](PubSub::take_woken).
    woken: BTreeSet<ClientId>,
}

impl PubSub {
    pub(super) fn connect(&mut self, client: ClientId) {
        self.outboxes.insert(client, Outbox::default());
    }

    pub(super) fn disconnect(&mut self, client: ClientId) {
        self.leave_all(client);
        self.outboxes.remove(&client);
    }

    pub(super) fn protocol(&self, client: ClientId) -> Protocol {
        self.outboxes.get(&client).map(|outbox| outbox.protocol).unwrap_or_default()
    }

    /// Sets the version of the protocol for the next values.
    pub(super) fn set_protocol(&mut self, client: ClientId, protocol: Protocol) {
        if let Some(outbox) = self.outboxes.get_mut(&client) {
            outbox.protocol = protocol;
        }
    }

    /// Queues a reply or a message for a connection.
    pub(super) fn send(&mut self, client: ClientId, value: RespValue) {
        let Some(outbox) = self.outboxes.get_mut(&client) else { return };
        if outbox.values.len() >= MAX_OUTBOX {
            outbox.is_overfull = true;
        } else {
            outbox.values.push(in_protocol(value, outbox.protocol));
        }
        self.woken.insert(client);
    }

    /// Takes the values for a connection. `None` if there were more than the limit.
    pub(super) fn take(&mut self, client: ClientId) -> Option<Vec<RespValue>> {
        self.woken.remove(&client);
        let outbox = self.outboxes.get_mut(&client)?;
        if outbox.is_overfull { None } else { Some(std::mem::take(&mut outbox.values)) }
    }

    /// Takes the connections that have something to send.
    pub(super) fn take_woken(&mut self) -> BTreeSet<ClientId> {
        std::mem::take(&mut self.woken)
    }

    /// Adds a subscription and confirms it.
    pub(super) fn subscribe(&mut self, client: ClientId, topic: PubSubTopic, name: &Bytes) {
        let key = (topic, name.clone());
        self.subscribers.entry(key.clone()).or_default().insert(client);
        self.subscriptions.entry(client).or_default().insert(key);
        self.confirm(client, topic, "subscribe", RespValue::Bulk(name.clone()));
    }

    /// Ends subscriptions and confirms that: of these names, or of all if there are none.
    pub(super) fn unsubscribe(&mut self, client: ClientId, topic: PubSubTopic, names: &[Bytes]) {
        let names = if names.is_empty() { self.names(client, topic) } else { names.to_vec() };
        if names.is_empty() {
            self.confirm(client, topic, "unsubscribe", RespValue::Null);
        }
        for name in names {
            self.leave(client, &(topic, name.clone()));
            self.confirm(client, topic, "unsubscribe", RespValue::Bulk(name));
        }
    }

    fn confirm(&mut self, client: ClientId, topic: PubSubTopic, kind: &str, name: RespValue) {
        let kind = RespValue::Bulk(format!("{}{kind}", topic.prefix()).into());
        let count =
            self.count(client, |other| (other == PubSubTopic::Shard) == (topic == PubSubTopic::Shard));
        self.send(client, RespValue::Push(vec![kind, name, RespValue::Integer(count as i64)]));
    }

    /// Returns whether a connection has a subscription.
    pub(super) fn is_subscribed(&self, client: ClientId) -> bool {
        self.subscriptions.contains_key(&client)
    }

    /// Returns the names of a client's subscriptions.
    pub(super) fn names(&self, client: ClientId, topic: PubSubTopic) -> Vec<Bytes> {
        let all = self.subscriptions.get(&client).into_iter().flatten();
        all.filter(|(other, _)| *other == topic).map(|(_, name)| name.clone()).collect()
    }

    /// Returns the number of subscribers of a channel.
    pub(super) fn subscribers(&self, topic: PubSubTopic, name: &Bytes) -> usize {
        self.subscribers.get(&(topic, name.clone())).map_or(0, BTreeSet::len)
    }

    /// Returns the channels that have subscribers.
    pub(super) fn channels(&self) -> impl Iterator<Item = &Bytes> {
        self.subscribers.keys().filter(|(topic, _)| *topic == PubSubTopic::Channel).map(|(_, name)| name)
    }

    /// Ends all subscriptions of a connection without a word.
    pub(super) fn leave_all(&mut self, client: ClientId) {
        for key in self.subscriptions.remove(&client).into_iter().flatten() {
            self.leave(client, &key);
        }
    }

    fn leave(&mut self, client: ClientId, key: &(PubSubTopic, Bytes)) {
        if let Some(clients) = self.subscribers.get_mut(key) {
            clients.remove(&client);
            if clients.is_empty() {
                self.subscribers.remove(key);
            }
        }
        if let Some(keys) = self.subscriptions.get_mut(&client) {
            keys.remove(key);
            if keys.is_empty() {
                self.subscriptions.remove(&client);
            }
        }
    }

    fn count(&self, client: ClientId, which: impl Fn(PubSubTopic) -> bool) -> usize {
        self.subscriptions.get(&client).into_iter().flatten().filter(|(topic, _)| which(*topic)).count()
    }

    /// Sends a message to the subscribers of a channel. Returns their number.
    pub(super) fn publish(&mut self, topic: PubSubTopic, name: &Bytes, message: &Bytes) -> usize {
        let bulk = |bytes: &Bytes| RespValue::Bulk(bytes.clone());
        let mut sent = 0;
        let clients = self.subscribers.get(&(topic, name.clone())).cloned().unwrap_or_default();
        for client in clients {
            let kind = RespValue::Bulk(format!("{}message", topic.prefix()).into());
            self.send(client, RespValue::Push(vec![kind, bulk(name), bulk(message)]));
            sent += 1;
        }
        if topic == PubSubTopic::Shard {
            return sent;
        }
        let matching: Vec<_> = self
            .subscribers
            .iter()
            .filter(|((topic, pattern), _)| *topic == PubSubTopic::Pattern && glob::matches(pattern, name))
            .map(|((_, pattern), clients)| (pattern.clone(), clients.clone()))
            .collect();
        for (pattern, clients) in matching {
            for client in clients {
                let kind = RespValue::Bulk(Bytes::from_static(b"pmessage"));
                self.send(client, RespValue::Push(vec![kind, bulk(&pattern), bulk(name), bulk(message)]));
                sent += 1;
            }
        }
        sent
    }
}

/// Converts a value to the types of a protocol. The only absent value of RESP3 is `Null`, and the
/// doubles of RESP2 have 17 digits.
pub(super) fn in_protocol(value: RespValue, protocol: Protocol) -> RespValue {
    match protocol {
        Protocol::Resp2 => with_text_scores(value).into_resp2(),
        Protocol::Resp3 => with_one_null(value),
    }
}

fn with_text_scores(value: RespValue) -> RespValue {
    match value {
        RespValue::Double(number) => RespValue::Bulk(float_text(number).into()),
        RespValue::Array(items) => RespValue::Array(items.into_iter().map(with_text_scores).collect()),
        other => other,
    }
}

fn with_one_null(value: RespValue) -> RespValue {
    match value {
        RespValue::NullBulk | RespValue::NullArray => RespValue::Null,
        RespValue::Array(items) => RespValue::Array(items.into_iter().map(with_one_null).collect()),
        RespValue::Map(pairs) => {
            let pairs = pairs.into_iter().map(|(key, value)| (with_one_null(key), with_one_null(value)));
            RespValue::Map(pairs.collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_takes_nothing_is_given_up() {
        let mut pubsub = PubSub::default();
        pubsub.connect(1);
        pubsub.subscribe(1, PubSubTopic::Channel, &Bytes::from("c"));
        for _ in 1..MAX_OUTBOX {
            pubsub.publish(PubSubTopic::Channel, &Bytes::from("c"), &Bytes::from("m"));
        }
        assert_eq!(pubsub.take(1).map(|values| values.len()), Some(MAX_OUTBOX));
        for _ in 0..=MAX_OUTBOX {
            pubsub.publish(PubSubTopic::Channel, &Bytes::from("c"), &Bytes::from("m"));
        }
        assert_eq!(pubsub.take(1), None);
    }

    #[test]
    fn a_client_that_has_left_leaves_nothing() {
        let mut pubsub = PubSub::default();
        pubsub.connect(1);
        for topic in [PubSubTopic::Channel, PubSubTopic::Pattern, PubSubTopic::Shard] {
            pubsub.subscribe(1, topic, &Bytes::from("c"));
        }
        pubsub.disconnect(1);
        assert!(pubsub.subscribers.is_empty() && pubsub.subscriptions.is_empty());
        assert!(pubsub.outboxes.is_empty());
    }
}
