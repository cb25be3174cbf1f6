//! `RedisBroker`: topics on a Redis server.
//!
//! Each operation is one script, and so one atomic step. A script gets the id of the server process
//! of its connection, so that the first message after a restart of Redis begins a new epoch.

mod errors;
mod followed;
mod gate;
mod keys;
mod reply;
mod script_calls;
#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub))]
pub(crate) mod scripts;
mod server;
mod sweep;
mod wire_event;

use super::store::{
    Broker, BrokerError, BrokerStart, Changed, History, MapUpdate, NodeId, NodeLease, Notification,
    Partition, PartitionTops, Position, Publication, Published, ReadRange, Snapshot, TopicName, TopicSeen,
};
use crate::{
    error::{Error, Result},
    redis::RedisClient,
    settings::check_range,
    sync::{Completion, completion},
};
use followed::Followed;
use keys::Keys;
use script_calls::{BrokerTimes, LARGEST_QUESTION, ScriptCalls};
use server::{ServerDemands, StoreServer};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The time of an operation, unless set otherwise.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the metadata of an idle topic is kept, unless set otherwise.
const KEEP_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The smallest limit for the elements of a message. A question has 6 for each topic and a few
/// others, and an update 4 for each change.
const MIN_ELEMENTS: usize = 6 * TopicSeen::LIMIT + 100;

/// The smallest limit for the bytes of commands that wait.
const MIN_PENDING_BYTES: usize = 1024 * 1024;
const _: () = assert!(LARGEST_QUESTION <= MIN_PENDING_BYTES);

/// The largest number of servers.
const MAX_SERVERS: usize = 16;

/// A broker on Redis 7.0 or newer, or Valkey, for any number of nodes.
///
/// ```no_run
/// use netwheel::{broker::RedisBroker, prelude::*, redis::RedisClient};
///
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let redis = RedisClient::builder(&group, "redis://127.0.0.1:6379").connect()?;
/// let broker = RedisBroker::new(redis).prefix("chat");
/// # drop(broker);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// - A message is stored when `publish` completes, as safely as Redis stores it: with
///   `appendfsync always` on disk, with `everysec` up to a second later.
/// - If Redis comes back without acknowledged messages, a new epoch begins: with the first
///   message after the restart, or with the first request of a node that has seen a lost message.
///   That also holds after `FLUSHALL`, and after a deleted or evicted key. A failover to a replica
///   and back to the same process without a message or a reader between is not noticed by nodes
///   that have not seen the lost messages.
/// - A message whose reply is lost with the connection is [`BrokerError::Uncertain`]. With a
///   [`MessageId`](super::MessageId), the broker sends it again within the
///   [timeout](RedisBroker::operation_timeout), and keeps the order of the messages. The script
///   stores it once.
/// - A server that replies `READONLY` or `LOADING` is not used now: [`BrokerError::Refused`].
///
/// # Server
///
/// The first connection, and each one to another process, is checked. Operations wait for the
/// first check. An unsuitable server is checked again with an operation 5 s later.
///
/// | demand | else |
/// |---|---|
/// | Redis 7.0 or newer | [`BrokerError::Unsuitable`] |
/// | `maxmemory-policy noeviction` in `INFO` | [`BrokerError::Unsuitable`], unless [`allow_eviction`](RedisBroker::allow_eviction) is set |
/// | the number of partitions with which the store was set up | [`BrokerError::Partitions`] |
/// | the place in the list of servers | [`BrokerError::Unsuitable`] |
///
/// The user needs `EVAL`, `EVALSHA`, `SCRIPT LOAD`, `INFO`, `PING`, `TIME`, `MULTI`, `EXEC`,
/// `PUBLISH`, `SUBSCRIBE`, `UNSUBSCRIBE`, `PEXPIRE`, `PERSIST`, `UNLINK`, and the commands for
/// streams, hashes, strings, sets and sorted sets, on the keys and channels `{prefix*`.
///
/// # Sizes
///
/// The [limits](crate::redis::RedisClientBuilder::resp_limits) of the client limit the broker. All
/// nodes should have the same ones.
///
/// - A message, a notification, and the changes of an update with 256 bytes for each have at most
///   `max_bulk_len` less 512 bytes. Larger ones fail with [`Error::Setting`].
/// - The client must allow at least 6,100 elements (`max_elements`) and 1 MiB of waiting commands
///   ([`max_pending_bytes`](crate::redis::RedisSettings::max_pending_bytes)), for 1,000 topics in
///   one question.
/// - A map has at most half as many entries as a reply has elements (`max_elements`), less 4. With
///   the default, that is 32,764. Further entries are not set.
/// - A map is read in one reply: 16 MiB, or four times `max_bulk_len` if that is more, less 64 KiB.
///   Besides the key and the value, an entry takes 32 bytes, and its position and owner up to 128.
///   The replica of a larger map is not loaded ([`BrokerError::TooLarge`]).
///
/// # Keys
///
/// All keys and the channel of a partition have the hash tag `{prefix:number}`, so a script uses
/// one slot of Redis Cluster. Leases and settings have the tag `{prefix}`. A message is one entry
/// of a stream. Its id is `offset-0`.
pub struct RedisBroker {
    clients: Vec<RedisClient>,
    prefix: String,
    times: BrokerTimes,
    allows_eviction: bool,
    operations: OnceLock<Arc<ScriptCalls>>,
    followed: Followed,
    is_closed: AtomicBool,
}

impl RedisBroker {
    /// Creates a broker on the server of a client. [`close`](Broker::close) closes the client.
    pub fn new(client: RedisClient) -> Self {
        RedisBroker {
            clients: vec![client],
            prefix: "netwheel".to_owned(),
            times: BrokerTimes { operation_timeout: OPERATION_TIMEOUT, keep_idle: KEEP_IDLE },
            allows_eviction: false,
            operations: OnceLock::new(),
            followed: Followed::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Adds an independent server, at most 15 times. The partitions are spread over the servers:
    /// number modulo servers. The first server also has the leases of nodes. All nodes must have
    /// the same servers in the same order.
    #[must_use]
    pub fn server(mut self, client: RedisClient) -> Self {
        self.clients.push(client);
        self
    }

    /// Sets the begin of the names of keys and channels: 1 to 64 ASCII letters, digits, `-`, `_`
    /// or `.`. The default is `netwheel`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the time of an operation, from the call to its completion. 5 s by default, 10 ms to 10
    /// minutes. After it, an operation fails with [`BrokerError::Unreachable`] if it was not sent,
    /// and otherwise with [`BrokerError::Uncertain`].
    #[must_use]
    pub fn operation_timeout(mut self, limit: Duration) -> Self {
        self.times.operation_timeout = limit;
        self
    }

    /// Sets the life of the metadata of a topic without messages, remembered message ids, entries
    /// and readers. 30 days by default, 1 minute to 10 years. After that, or up to twice as long,
    /// the topic begins anew with another epoch. Nodes ask for the topics of their members several
    /// times in this time. It should therefore be at least three times as long as their
    /// [`verify_interval`](crate::broker::TopicsBuilder::verify_interval). A map without entries
    /// begins anew after an hour, because a [`snapshot`](Broker::snapshot) is enough to create its
    /// metadata.
    #[must_use]
    pub fn keep_idle(mut self, time: Duration) -> Self {
        self.times.keep_idle = time;
        self
    }

    /// Accepts servers that evict keys when their memory is full. A topic whose key was evicted
    /// begins a new epoch, and an evicted map is empty.
    ///
    /// The lists of the entries that nodes own can be evicted, too. A node notices that with its
    /// next update of such entries, and sets them again with another lease. The entries of a node
    /// that ends before stay in their maps until they are removed or set again.
    #[must_use]
    pub fn allow_eviction(mut self) -> Self {
        self.allows_eviction = true;
        self
    }

    fn check(&self) -> Result<()> {
        if self.clients.len() > MAX_SERVERS {
            return Err(Error::setting("servers", self.clients.len(), "at most 16"));
        }
        for client in &self.clients {
            let elements = client.resp_limits().max_elements;
            if elements < MIN_ELEMENTS {
                return Err(Error::setting("max_elements", elements, "at least 6100 for a broker"));
            }
            let bytes = client.max_pending_bytes();
            if bytes < MIN_PENDING_BYTES {
                return Err(Error::setting("max_pending_bytes", bytes, "at least 1 MiB for a broker"));
            }
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(is_allowed) {
            let allowed = "1 to 64 ASCII letters, digits, `-`, `_` or `.`";
            return Err(Error::setting("prefix", self.prefix.escape_debug(), allowed));
        }
        let range = Duration::from_millis(10)..=Duration::from_secs(600);
        check_range("operation_timeout", self.times.operation_timeout, range, "10 ms to 10 minutes")?;
        let range = Duration::from_secs(60)..=Duration::from_secs(3660 * 24 * 3600);
        check_range("keep_idle", self.times.keep_idle, range, "1 minute to 10 years")
    }

    /// Returns the operations, or why there are none.
    fn operations(&self) -> Result<&Arc<ScriptCalls>, BrokerError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(BrokerError::Closed);
        }
        self.operations.get().ok_or_else(|| BrokerError::Unreachable("it was not started".into()))
    }

    /// Tries failed subscriptions again. Nodes call the operations on leases every few seconds.
    fn retry_followed(&self) {
        if let Ok(operations) = self.operations() {
            self.followed.retry(operations);
        }
    }

    fn call<T>(&self, call: impl FnOnce(&Arc<ScriptCalls>) -> Completion<T>) -> Completion<T> {
        match self.operations() {
            Ok(operations) => call(operations),
            Err(error) => Completion::ready(Err(error.into())),
        }
    }
}

impl Broker for RedisBroker {
    fn start(&self, start: BrokerStart) -> Result<()> {
        self.check()?;
        if self.is_closed.load(Ordering::Acquire) {
            return Err(BrokerError::Closed.into());
        }
        let keys = Keys::new(&self.prefix);
        let servers = self.clients.iter().enumerate().map(|(place, client)| {
            let demands = ServerDemands {
                partitions: start.partitions.get(),
                servers: self.clients.len(),
                place,
                allows_eviction: self.allows_eviction,
            };
            let timeout = self.times.operation_timeout;
            Arc::new(StoreServer::new(client.clone(), demands, keys.clone(), timeout))
        });
        let servers: Vec<_> = servers.collect();
        let operations = Arc::new(ScriptCalls::new(start, servers.clone(), keys, self.times));
        self.operations.set(operations).map_err(|_| BrokerError::InUse)?;
        servers.iter().for_each(StoreServer::check);
        Ok(())
    }

    fn follow(&self, partition: Partition, on: bool) {
        if let Ok(operations) = self.operations() {
            self.followed.follow(operations, partition, on);
        }
    }

    fn publish(&self, publication: Publication) -> Completion<Published> {
        if let Err(error) = publication.check() {
            return Completion::ready(Err(error));
        }
        self.call(|operations| operations.publish(publication))
    }

    fn notify(&self, notification: Notification) -> Result<()> {
        self.operations()?.notify(&notification)
    }

    fn read(&self, topic: &TopicName, range: ReadRange) -> Completion<History> {
        self.call(|operations| operations.read(topic, range))
    }

    fn tops(&self, partition: Partition, topics: Vec<TopicSeen>) -> Completion<PartitionTops> {
        if topics.len() > TopicSeen::LIMIT {
            return Completion::ready(Err(Error::setting("topics", topics.len(), "at most 1000")));
        }
        self.call(|operations| {
            if partition.get() >= operations.start.partitions.get() {
                let error = BrokerError::Refused("the partition does not exist".into());
                return Completion::ready(Err(error.into()));
            }
            operations.tops(partition, topics)
        })
    }

    fn metadata_life(&self) -> Option<Duration> {
        Some(self.times.keep_idle.min(scripts::EMPTY_MAP_LIFE))
    }

    fn change(&self, update: MapUpdate) -> Completion<Changed> {
        if update.changes.len() > MapUpdate::LIMIT {
            return Completion::ready(Err(Error::setting("changes", update.changes.len(), "at most 1000")));
        }
        self.call(|operations| operations.change(update))
    }

    fn snapshot(&self, topic: &TopicName, seen: Option<Position>) -> Completion<Snapshot> {
        self.call(|operations| operations.snapshot(topic, seen))
    }

    fn renew(&self, lease: NodeLease) -> Completion<()> {
        self.retry_followed();
        self.call(|operations| operations.renew_lease(&lease))
    }

    fn end_lost_leases(&self) -> Completion<Vec<NodeId>> {
        self.retry_followed();
        self.call(|operations| {
            let (completer, done) = completion(None);
            let sweeper = operations.clone();
            operations.some_owners().on_complete(move |owners| {
                // The leases of others end, also if a server cannot be asked.
                let owners = owners.unwrap_or_default();
                sweeper.clone().lost_leases(owners).on_complete(move |lost| match lost {
                    Ok(lost) => sweeper.sweep_all(lost).on_complete(|swept| completer.complete(swept)),
                    Err(error) => completer.complete(Err(error)),
                });
            });
            done
        })
    }

    fn end_lease(&self, node: &NodeId) -> Completion<()> {
        self.call(|operations| {
            let (completer, done) = completion(None);
            let (sweeper, node) = (operations.clone(), node.clone());
            operations.end_leases(vec![node.clone()]).on_complete(move |lost| match lost {
                Ok(_) => {
                    let swept = sweeper.sweep_all(vec![node]);
                    swept.on_complete(|swept| completer.complete(swept.map(drop)));
                }
                Err(error) => completer.complete(Err(error)),
            });
            done
        })
    }

    fn close(&self) -> Completion<()> {
        self.is_closed.store(true, Ordering::Release);
        self.followed.clear();
        let (completer, done) = completion(None);
        self.clients.iter().for_each(RedisClient::close);
        close_next(self.clients.clone(), completer);
        done
    }
}

/// Completes when all clients have closed.
fn close_next(mut clients: Vec<RedisClient>, completer: crate::sync::Completer<()>) {
    match clients.pop() {
        // The connection has ended, also if it has ended with an error.
        Some(client) => client.closed().on_complete(move |_| close_next(clients, completer)),
        None => completer.complete(Ok(())),
    }
}

impl fmt::Debug for RedisBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBroker")
            .field("prefix", &self.prefix)
            .field("servers", &self.clients.len())
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}
