//! `ScriptCalls`: the operations of a broker, each of which calls a script.

mod publish_lane;

use super::{
    errors::broker_error,
    keys::Keys,
    reply::{self, Parsed, SnapshotLimits},
    scripts,
    server::StoreServer,
    wire_event,
};
use crate::{
    broker::{
        pending_limit::{MAX_PENDING_BYTES, PendingLimit},
        store::{
            BrokerError, BrokerStart, Changed, Epoch, History, LeaseKind, MapCondition, MapUpdate, NodeId,
            NodeLease, Notification, Partition, PartitionTops, Position, Publication, Published, ReadFrom,
            ReadRange, Snapshot, TopicName, TopicSeen,
        },
    },
    codec::RespValue,
    error::{Error, Result},
    machine,
    redis::{RedisCommand, RedisScript, ServerInfo},
    sync::{Completion, Random, completion},
};
use bytes::Bytes;
use publish_lane::{PendingMessage, PublishLane};
use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

/// Offsets that readers pass are at most this, so that they are exact in Lua.
const MAX_OFFSET: u64 = 1 << 53;

/// The bytes that an operation without a payload counts for in the limits of the client.
const WEIGHT: usize = 512;

/// The weight of a topic in a question, besides three times its name.
const TOPIC_WEIGHT: usize = 256;

/// The weight of the largest question for the positions of topics.
pub(super) const LARGEST_QUESTION: usize =
    WEIGHT + TopicSeen::LIMIT * (TOPIC_WEIGHT + 3 * TopicName::MAX_LEN);

/// The largest number of messages that wait for a recovery of their lanes.
const MAX_WAITING: usize = 16_384;

/// The most bytes of the head of an event, with the name of a topic.
const MAX_EVENT_HEAD: usize = 512;

/// The most bytes of the head of a change in an event, with the node that owns the entry.
const MAX_CHANGE_HEAD: usize = 256;

/// The bytes of a reply with a snapshot that are not for entries.
const SNAPSHOT_MARGIN: usize = 64 << 10;

/// The scripts, with their digests.
struct BrokerScripts {
    publish: RedisScript,
    read: RedisScript,
    tops: RedisScript,
    change: RedisScript,
    snapshot: RedisScript,
    sweep: RedisScript,
    renew: RedisScript,
    lost: RedisScript,
}

/// The times of a broker.
#[derive(Debug, Clone, Copy)]
pub(super) struct BrokerTimes {
    /// The time of an operation, from the call to the completion.
    pub(super) operation_timeout: Duration,
    pub(super) keep_idle: Duration,
}

pub(super) struct ScriptCalls {
    pub(super) start: BrokerStart,
    pub(super) servers: Vec<Arc<StoreServer>>,
    pub(super) keys: Keys,
    pub(super) times: BrokerTimes,
    lanes: Vec<PublishLane>,
    /// The messages that wait for a recovery of their lanes.
    waiting: Arc<PendingLimit>,
    /// Counts the calls of [`ScriptCalls::some_owners`], each of which asks other partitions.
    pub(super) owner_turn: AtomicUsize,
    random: Random,
    scripts: BrokerScripts,
}

fn text(number: u64) -> Bytes {
    number.to_string().into()
}

fn millis(time: Duration) -> Bytes {
    time.as_millis().to_string().into()
}

fn topic_bytes(topic: &TopicName) -> Bytes {
    Bytes::copy_from_slice(topic.as_str().as_bytes())
}

fn seen_arguments(seen: Option<Position>) -> [Bytes; 2] {
    let seen = seen.unwrap_or(Position::new(0, 0));
    [text(seen.epoch), text(seen.offset.min(MAX_OFFSET))]
}

impl ScriptCalls {
    pub(super) fn new(
        start: BrokerStart,
        servers: Vec<Arc<StoreServer>>,
        keys: Keys,
        times: BrokerTimes,
    ) -> Self {
        let script = |source: &'static str| RedisScript::new(source);
        ScriptCalls {
            lanes: start.partitions.all().map(|_| PublishLane::default()).collect(),
            random: Random::new(start.seed ^ machine::seed().map_or_else(Random::system_seed, |_| 0)),
            waiting: PendingLimit::new(MAX_WAITING, MAX_PENDING_BYTES),
            owner_turn: AtomicUsize::new(0),
            servers,
            keys,
            times,
            scripts: BrokerScripts {
                publish: script(scripts::PUBLISH),
                read: script(scripts::READ),
                tops: script(scripts::TOPS),
                change: script(scripts::CHANGE),
                snapshot: script(scripts::SNAPSHOT),
                sweep: script(scripts::SWEEP),
                renew: script(scripts::RENEW),
                lost: script(scripts::LOST),
            },
            start,
        }
    }

    /// Returns the most bytes of the content of an event, besides its head.
    fn max_event_bytes(&self, partition: Partition) -> usize {
        let longest = self.server(partition).client.resp_limits().max_bulk_len;
        longest.saturating_sub(MAX_EVENT_HEAD)
    }

    /// Fails if the event of a message or of a map change would exceed the longest string of the
    /// client, which would end the connections of all followers.
    fn check_event(&self, partition: Partition, setting: &'static str, bytes: usize) -> Result<()> {
        if bytes > self.max_event_bytes(partition) {
            let allowed = "at most `max_bulk_len` of the client, less 512 bytes";
            return Err(Error::setting(setting, format_args!("{bytes} bytes"), allowed));
        }
        Ok(())
    }

    /// Returns how many pairs of strings a reply may have, besides some other elements.
    fn max_pairs(&self, partition: Partition) -> u64 {
        let elements = self.server(partition).client.resp_limits().max_elements;
        (elements.saturating_sub(8) / 2) as u64
    }

    /// Returns how large a map may be, so that a snapshot fits into a reply.
    fn snapshot_limits(&self, partition: Partition) -> SnapshotLimits {
        let bytes = self.server(partition).client.max_reply_bytes().saturating_sub(SNAPSHOT_MARGIN);
        SnapshotLimits { entries: self.max_pairs(partition), bytes: bytes as u64 }
    }

    /// Returns the server of a partition. There is at least one.
    pub(super) fn server(&self, partition: Partition) -> &Arc<StoreServer> {
        &self.servers[usize::from(partition.get()) % self.servers.len()]
    }

    fn lane(&self, partition: Partition) -> &PublishLane {
        &self.lanes[usize::from(partition.get()) % self.lanes.len()]
    }

    /// Returns an id for a new epoch or generation.
    fn new_id(&self) -> Bytes {
        text(Epoch::id_from(self.random.next()))
    }

    /// Calls a command that is built for the process of the connection.
    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        partition: Partition,
        weight: usize,
        build: impl FnOnce(&ScriptCalls, &ServerInfo) -> RedisCommand + Send + 'static,
        parse: impl FnOnce(RespValue) -> Parsed<T> + Send + 'static,
    ) -> Completion<T> {
        let (completer, done) = completion(None);
        let operations = self.clone();
        // From the call, so that the time behind the check counts.
        let deadline = machine::now() + self.times.operation_timeout;
        self.server(partition).when_suitable(weight, move |passed| {
            if let Err(error) = passed {
                return completer.complete(Err(error.into()));
            }
            let client = operations.server(partition).client.clone();
            let timeout = deadline.saturating_duration_since(machine::now());
            let command = RedisCommand::built_with(move |server| build(&operations, server));
            let command = command.weight(weight).affinity(partition.get().into()).timeout(timeout);
            client.call(command).on_complete(move |replied| {
                let parsed = replied.map_err(|error| broker_error(&error)).and_then(parse);
                completer.complete(parsed.map_err(Into::into));
            });
        });
        done
    }

    /// Returns the arguments that the scripts of one topic have in common.
    fn common(
        &self,
        partition: Partition,
        topic: &TopicName,
        seen: Option<Position>,
        server: &ServerInfo,
    ) -> Vec<Bytes> {
        let mut arguments = self.first_arguments(partition, server);
        arguments.push(topic_bytes(topic));
        arguments.extend(seen_arguments(seen));
        arguments
    }

    /// Returns the arguments that the scripts of a partition have in common.
    fn first_arguments(&self, partition: Partition, server: &ServerInfo) -> Vec<Bytes> {
        let run_id = server.run_id().unwrap_or("unknown").to_owned();
        let channel = self.keys.partition(partition.get()).channel();
        vec![run_id.into(), self.new_id(), millis(self.times.keep_idle), channel]
    }

    pub(super) fn publish(self: &Arc<Self>, publication: Publication) -> Completion<Published> {
        let partition = self.start.partitions.of(&publication.topic);
        if let Err(error) = self.check_event(partition, "payload", publication.payload.len()) {
            return Completion::ready(Err(error));
        }
        let (completer, done) = completion(None);
        let deadline = machine::now() + self.times.operation_timeout;
        let pending = PendingMessage::new(publication, completer, deadline);
        let operations = self.clone();
        self.server(partition).when_suitable(pending.weight(), move |passed| match passed {
            Ok(()) => operations.submit(partition, pending),
            Err(error) => pending.fail(error),
        });
        done
    }

    fn publish_command(
        &self,
        partition: Partition,
        publication: &Publication,
        server: &ServerInfo,
    ) -> RedisCommand {
        let keys = self.keys.partition(partition.get());
        let topic = publication.topic.as_str().as_bytes();
        let mut names = vec![keys.metadata(topic), keys.sequence(), keys.stream(topic)];
        names.extend(publication.id.as_ref().map(|id| keys.message_id(topic, id.as_bytes())));
        let limits = &publication.limits;
        let mut arguments = self.common(partition, &publication.topic, publication.seen, server);
        arguments.extend([
            publication.payload.clone(),
            text(limits.max_messages()),
            text(limits.max_bytes()),
            millis(limits.max_age()),
            millis(publication.window),
        ]);
        self.scripts.publish.command(names, arguments)
    }

    pub(super) fn notify(&self, notification: &Notification) -> Result<()> {
        let partition = self.start.partitions.of(&notification.topic);
        self.check_event(partition, "payload", notification.payload.len())?;
        let client = &self.server(partition).client;
        if client.server_info().is_none() {
            return Err(BrokerError::Unreachable("there is no connection".into()).into());
        }
        let channel = self.keys.partition(partition.get()).channel();
        let message = wire_event::notification(notification);
        let command = RedisCommand::new("PUBLISH").arg(channel).arg(message).affinity(partition.get().into());
        match client.try_call(command) {
            Ok(sent) => {
                sent.detach();
                Ok(())
            }
            Err(refused) => Err(BrokerError::Full(refused.to_string().into()).into()),
        }
    }

    pub(super) fn read(self: &Arc<Self>, topic: &TopicName, range: ReadRange) -> Completion<History> {
        let (topic, partition) = (topic.clone(), self.start.partitions.of(topic));
        let max_messages = range.max_messages.min(self.max_pairs(partition));
        let build = move |operations: &ScriptCalls, server: &ServerInfo| {
            let keys = operations.keys.partition(partition.get());
            let name = topic.as_str().as_bytes();
            let (from, most) = match range.from {
                ReadFrom::After(offset) => (text(offset.min(MAX_OFFSET)), max_messages),
                ReadFrom::Last(messages) => ("-".into(), messages.min(max_messages)),
            };
            let mut arguments = operations.common(partition, &topic, range.seen, server);
            arguments.extend([from, text(most), text(range.max_bytes.min(MAX_OFFSET))]);
            let names = [keys.metadata(name), keys.sequence(), keys.stream(name)];
            operations.scripts.read.command(names, arguments)
        };
        self.call(partition, WEIGHT, build, reply::history)
    }

    pub(super) fn tops(
        self: &Arc<Self>,
        partition: Partition,
        topics: Vec<TopicSeen>,
    ) -> Completion<PartitionTops> {
        let topic_weight = |seen: &TopicSeen| TOPIC_WEIGHT + 3 * seen.topic.as_str().len();
        let weight = WEIGHT + topics.iter().map(topic_weight).sum::<usize>();
        let build = move |operations: &ScriptCalls, server: &ServerInfo| {
            let keys = operations.keys.partition(partition.get());
            let mut names = vec![keys.sequence()];
            let mut arguments = operations.first_arguments(partition, server);
            for seen in &topics {
                let topic = seen.topic.as_str().as_bytes();
                names.extend([keys.metadata(topic), keys.map(topic)]);
                arguments.push(topic_bytes(&seen.topic));
                arguments.extend(seen_arguments(seen.seen));
                arguments.push(operations.new_id());
            }
            operations.scripts.tops.command(names, arguments)
        };
        self.call(partition, weight, build, reply::tops)
    }

    pub(super) fn change(self: &Arc<Self>, update: MapUpdate) -> Completion<Changed> {
        let partition = self.start.partitions.of(&update.topic);
        let weight = WEIGHT + update.bytes();
        let bytes = update.bytes() + MAX_CHANGE_HEAD * update.changes.len();
        if let Err(error) = self.check_event(partition, "changes", bytes) {
            return Completion::ready(Err(error));
        }
        // A snapshot must fit into a reply.
        let max_entries = update.max_entries.min(self.max_pairs(partition));
        let build = move |operations: &ScriptCalls, server: &ServerInfo| {
            let keys = operations.keys.partition(partition.get());
            let topic = update.topic.as_str().as_bytes();
            let mut arguments = operations.common(partition, &update.topic, update.seen, server);
            let owner = update.owner.map(|owner| owner.to_string()).unwrap_or_default();
            let [_, _, owned] = keys.begins();
            arguments.extend([owner.into(), text(max_entries), owned]);
            for change in update.changes {
                let (kind, value) = change.value.map_or(("-", Bytes::new()), |value| ("=", value));
                let condition = match change.condition {
                    None => Bytes::new(),
                    Some(MapCondition::Absent) => "!".into(),
                    Some(MapCondition::Unchanged(at)) => format!("{} {}", at.epoch, at.offset).into(),
                };
                arguments.extend([kind.into(), change.key, value, condition]);
            }
            let names = [keys.metadata(topic), keys.sequence(), keys.map(topic), keys.ended(), keys.owners()];
            operations.scripts.change.command(names, arguments)
        };
        self.call(partition, weight, build, reply::changed)
    }

    pub(super) fn snapshot(
        self: &Arc<Self>,
        topic: &TopicName,
        seen: Option<Position>,
    ) -> Completion<Snapshot> {
        let (topic, partition) = (topic.clone(), self.start.partitions.of(topic));
        let limits = self.snapshot_limits(partition);
        let build = move |operations: &ScriptCalls, server: &ServerInfo| {
            let keys = operations.keys.partition(partition.get());
            let name = topic.as_str().as_bytes();
            let names = [keys.metadata(name), keys.sequence(), keys.map(name)];
            let mut arguments = operations.common(partition, &topic, seen, server);
            arguments.extend([text(limits.entries), text(limits.bytes)]);
            operations.scripts.snapshot.command(names, arguments)
        };
        self.call(partition, WEIGHT, build, move |reply| reply::snapshot(reply, limits))
    }

    /// Removes some entries of a node from the maps of a partition. Completes with the number of
    /// entries that are left.
    pub(super) fn sweep(self: &Arc<Self>, partition: Partition, node: &NodeId) -> Completion<u64> {
        /// The largest number of entries that a script removes.
        const AT_ONCE: u64 = 500;
        /// How long changes of a node are refused after its lease has ended.
        const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
        let node = node.to_string();
        let max_bytes = self.max_event_bytes(partition) as u64;
        let build = move |operations: &ScriptCalls, server: &ServerInfo| {
            let keys = operations.keys.partition(partition.get());
            let names = [keys.owned(node.as_bytes()), keys.sequence(), keys.ended(), keys.owners()];
            let [metadata, maps, _] = keys.begins();
            let mut arguments = operations.first_arguments(partition, server);
            arguments.extend([node.into(), text(AT_ONCE), metadata, maps, millis(REMEMBERED)]);
            arguments.push(text(max_bytes));
            operations.scripts.sweep.command(names, arguments)
        };
        self.call(partition, WEIGHT, build, |reply| reply::number(&reply))
    }

    pub(super) fn renew_lease(self: &Arc<Self>, lease: &NodeLease) -> Completion<()> {
        let (name, node) = (lease.node.name().to_owned(), lease.node.to_string());
        let duration = millis(lease.duration);
        let kind = match lease.kind {
            LeaseKind::Begin => "begin",
            LeaseKind::BeginAgain => "again",
            LeaseKind::Renew => "renew",
        };
        let build = move |operations: &ScriptCalls, _: &ServerInfo| {
            let arguments = [node.into(), name.into(), duration, Bytes::from(kind)];
            operations.scripts.renew.command(operations.lease_keys(), arguments)
        };
        self.call(Partition::new(0), WEIGHT, build, |reply| match reply {
            RespValue::Integer(1) => Ok(()),
            RespValue::Integer(-1) => Err(BrokerError::LeaseTaken),
            _ => Err(BrokerError::LeaseEnded),
        })
    }

    /// Ends lost leases and those of `nodes`. Completes with the nodes whose entries are to be
    /// removed.
    pub(super) fn end_leases(self: &Arc<Self>, nodes: Vec<NodeId>) -> Completion<Vec<NodeId>> {
        self.ended_leases("end", nodes)
    }

    /// Ends lost leases. Completes with the nodes whose entries are to be removed, including each
    /// of `owners` without a lease.
    pub(super) fn lost_leases(self: &Arc<Self>, owners: Vec<NodeId>) -> Completion<Vec<NodeId>> {
        self.ended_leases("lost", owners)
    }

    fn ended_leases(self: &Arc<Self>, kind: &'static str, nodes: Vec<NodeId>) -> Completion<Vec<NodeId>> {
        let build = move |operations: &ScriptCalls, _: &ServerInfo| {
            let arguments = std::iter::once(kind.to_owned()).chain(nodes.iter().map(NodeId::to_string));
            operations.scripts.lost.command(operations.lease_keys(), arguments)
        };
        self.call(Partition::new(0), WEIGHT, build, reply::nodes)
    }

    /// Reads which nodes own entries in a partition.
    pub(super) fn owners(self: &Arc<Self>, partition: Partition) -> Completion<Vec<NodeId>> {
        let build = move |operations: &ScriptCalls, _: &ServerInfo| {
            RedisCommand::new("SMEMBERS").arg(operations.keys.partition(partition.get()).owners())
        };
        self.call(partition, WEIGHT, build, reply::nodes)
    }

    /// Notes that the entries of a node were removed.
    pub(super) fn forget_lease(self: &Arc<Self>, node: &NodeId) -> Completion<()> {
        let node = node.to_string();
        let build = move |operations: &ScriptCalls, _: &ServerInfo| {
            let [_, _, ended] = operations.lease_keys();
            RedisCommand::new("SREM").arg(ended).arg(node)
        };
        self.call(Partition::new(0), WEIGHT, build, |_| Ok(()))
    }

    fn lease_keys(&self) -> [Bytes; 3] {
        ["leases", "incarnations", "ended"].map(|name| self.keys.shared(name))
    }
}
