//! Where messages are kept, those of rooms and direct ones to users that are not connected: in
//! memory, in a file, or on a Redis server that several chat servers share.

use crate::{login::resume_token::TokenKey, options::Options};
use netwheel::{
    Completion,
    broker::{
        BrokerError, MemoryBroker, RedisBroker, SqliteBroker, TopicName, Topics,
        store::{MapChange, MapCondition, MapUpdate},
    },
    codec::RespLimits,
    prelude::*,
    redis::RedisClient,
    shutdown::ShutdownOptions,
};
use std::{sync::mpsc, time::Duration};

/// What the names of all keys in Redis begin with.
const PREFIX: &str = "netwheel-im";
/// The map with the key for tokens.
const SECRETS: &str = "secrets";
/// The name of that key in the map.
const TOKENS: &str = "tokens";
/// Maximum number of rooms, approximately. Each has a topic for its messages and a map of its
/// members. The maps of names and of kept messages, and the topics of servers count, too.
const MAX_ROOMS: usize = 65_536;
/// How long an unused room without messages is known. This is longer than the life of a token, so
/// no client resumes in a forgotten room.
const KEEP_IDLE: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// A snapshot of a map is one reply of Redis, of at most four times this length. Those of names and
/// of kept messages have at most 512 MiB.
const MAX_BULK: usize = 128 * 1024 * 1024;
/// Maximum number of elements of a reply: two for each name.
const MAX_ELEMENTS: usize = 2 * 1_000_000 + 8;
/// Time limit for the first answer of the store, and for its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The store of the rooms, and the loop that its connections are on.
pub(crate) struct Store {
    pub(crate) topics: Topics,
    /// Separate from the loops of the clients, so that it outlives them.
    group: Option<EventLoopGroup>,
}

impl Store {
    /// Returns the name of a server whose options have none.
    ///
    /// A server with a name ends the lease of an earlier process that had the name. So names are
    /// free at once after a crash. Servers that share a store need different names.
    pub(crate) fn default_node(options: &Options, tokens: &TokenKey) -> String {
        match options.store {
            Some(_) => "server".to_owned(),
            None => format!("server-{:016x}", tokens.server()),
        }
    }

    /// Opens `broker`, or otherwise the store that the options name, for the server `node`.
    pub(crate) fn open(
        broker: Option<MemoryBroker>,
        options: &Options,
        node: &str,
        group: &EventLoopGroup,
    ) -> Result<Self> {
        let (topics, own) = match (broker, &options.store, options.broker.as_str()) {
            (Some(broker), ..) => (Topics::builder(group, broker), None),
            (None, Some(file), _) => {
                let broker = SqliteBroker::open(file)
                    .map_err(|error| Error::other(format!("the rooms {}: {error}", file.display())))?;
                (Topics::builder(group, broker.keep_idle(KEEP_IDLE)), None)
            }
            (None, None, "memory") => {
                (Topics::builder(group, MemoryBroker::builder().max_topics(2 * MAX_ROOMS).build()?), None)
            }
            (None, None, url) => {
                let own = EventLoopGroup::builder().threads(1).name("im-store").build()?;
                let limits = RespLimits::new().max_bulk_len(MAX_BULK).max_elements(MAX_ELEMENTS);
                let client = RedisClient::builder(&own, url).client_name("im_server").resp_limits(limits);
                let client = client.connect()?;
                let broker = RedisBroker::new(client).prefix(PREFIX).keep_idle(KEEP_IDLE);
                (Topics::builder(&own, broker), Some(own))
            }
        };
        // A line of a client, with names and times.
        let max_payload = options.max_line.saturating_add(1024).min(16 << 20);
        let (lease, has_lease) = mpsc::channel();
        let topics = topics.node(node).max_topics(2 * MAX_ROOMS).max_payload(max_payload);
        // Fails after the start, when no thread waits any more.
        let topics = topics.on_lease(move |event| drop(lease.send(event))).build()?;
        // Without a lease, logins are refused.
        if topics.authority().is_none() {
            let begun = has_lease.recv_timeout(PATIENCE);
            begun.map_err(|_| Error::other("the store does not answer"))?;
        }
        Ok(Store { topics, group: own })
    }

    /// Returns the key for tokens that all servers of the store have. The first one stores its own.
    ///
    /// # Errors
    /// Fails if the store does not answer in time.
    pub(crate) fn token_key(&self, own: &TokenKey) -> Result<TokenKey> {
        let (topic, broker) = (TopicName::new(SECRETS)?, self.topics.broker());
        let mut first = MapChange::set(TOKENS, own.as_bytes().to_vec());
        first.condition = Some(MapCondition::Absent);
        wait(broker.change(MapUpdate::new(topic.clone(), vec![first])))?;
        let secrets = wait(broker.snapshot(&topic, None))?;
        let key = secrets.entries.iter().find(|entry| entry.key == TOKENS);
        let key = key.and_then(|entry| <[u8; 32]>::try_from(&entry.value[..]).ok());
        key.map(|key| own.with_key(key)).ok_or_else(|| BrokerError::failed("no key for tokens").into())
    }

    /// Ends the store, after the clients.
    pub(crate) fn close(&self) -> Result {
        let closed = wait(self.topics.close());
        if let Some(group) = &self.group {
            let shutdown = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO);
            group.shutdown(shutdown).wait()?;
        }
        closed
    }
}

/// Waits for an answer of the store, for a limited time. Blocks the thread.
///
/// # Errors
/// Fails if the store does not answer in time.
pub(crate) fn wait<T: Send + 'static>(answer: Completion<T>) -> Result<T> {
    answer.wait_timeout(PATIENCE).unwrap_or_else(|_| Err(Error::other("the store does not answer")))
}

/// Returns whether an operation that has failed may have been executed.
pub(crate) fn may_be_stored(error: &Error) -> bool {
    BrokerError::of(error).is_some_and(BrokerError::may_be_stored)
}
