//! All topics of a broker in memory, behind its lock.
//!
//! Invariants: the messages of all topics take at most the limit of bytes. Each stored event
//! increments the sequence of its partition and is pushed to the outboxes in the same step.

use super::{
    builder::MemoryLimits,
    leases::Leases,
    message_ids::MessageIds,
    outbox::Outboxes,
    topic::{MemoryTopic, TopicKind},
};
use crate::broker::store::{
    epochs::Epoch,
    error::BrokerError,
    event::{BrokerEvent, StoredEvent, TopicChange},
    history::{History, ReadRange},
    lease::{NodeId, NodeLease},
    map::{Changed, EntryChange, MapUpdate, Snapshot},
    partition::{Partition, Partitions, Sequence},
    position::Position,
    publication::{Publication, Published},
    topic_name::TopicName,
    tops::{PartitionTops, TopicSeen},
};
use crate::sync::Random;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// How often topics that can be removed are searched for while the limit of topics is reached.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// One of this many topics is removed by each search, so that not every new topic needs one.
const REMOVED_PART: usize = 64;

pub(super) struct BrokerTables {
    limits: MemoryLimits,
    /// `None` before the first node.
    partitions: Option<Partitions>,
    random: Random,
    sequences: Vec<Sequence>,
    topics: BTreeMap<TopicName, MemoryTopic>,
    ids: MessageIds,
    leases: Leases,
    /// The bytes that the messages of all topics take.
    cost: u64,
    /// The messages of all topics in the order in which they were stored. Some were removed since.
    order: VecDeque<(TopicName, u64)>,
    /// The number of messages that are kept.
    messages: usize,
    searched: Option<Instant>,
    nodes: Arc<[Arc<Outboxes>]>,
    /// The partitions with events that wait in an outbox.
    filled: Vec<Partition>,
}

/// Partitions with events that wait for nodes.
#[derive(Default)]
pub(super) struct Filled {
    nodes: Option<Arc<[Arc<Outboxes>]>>,
    partitions: Vec<Partition>,
}

impl Filled {
    /// Passes the events. Called without the lock.
    pub(super) fn drain(self) {
        for node in self.nodes.iter().flat_map(|nodes| nodes.iter()) {
            self.partitions.iter().for_each(|partition| node.drain(*partition));
        }
    }
}

impl BrokerTables {
    pub(super) fn new(limits: MemoryLimits) -> Self {
        BrokerTables {
            partitions: None,
            random: Random::new(0),
            sequences: Vec::new(),
            topics: BTreeMap::new(),
            ids: MessageIds::new(limits.message_ids),
            leases: Leases::default(),
            cost: 0,
            order: VecDeque::new(),
            messages: 0,
            searched: None,
            nodes: Arc::new([]),
            filled: Vec::new(),
            limits,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    // ---- nodes ----------------------------------------------------------------------------------

    pub(super) fn connect(
        &mut self,
        outboxes: Arc<Outboxes>,
        partitions: Partitions,
        seed: u64,
    ) -> Result<(), BrokerError> {
        if self.partitions.is_none() {
            self.random = Random::new(seed);
            self.sequences = partitions.all().map(|_| Sequence::new(self.random.next(), 0)).collect();
            self.partitions = Some(partitions);
        }
        let found = self.partitions.unwrap_or(partitions);
        if found != partitions {
            return Err(BrokerError::Partitions { found: found.get(), asked: partitions.get() });
        }
        self.nodes = self.nodes.iter().cloned().chain([outboxes]).collect();
        Ok(())
    }

    /// Ends the delivery to a node. Returns the old list, to drop it without the lock.
    pub(super) fn disconnect(&mut self, outboxes: &Arc<Outboxes>) -> Arc<[Arc<Outboxes>]> {
        outboxes.close();
        let others = self.nodes.iter().filter(|node| !Arc::ptr_eq(node, outboxes)).cloned().collect();
        std::mem::replace(&mut self.nodes, others)
    }

    /// Returns the events to deliver since the last call.
    pub(super) fn take_filled(&mut self) -> Filled {
        if self.filled.is_empty() {
            return Filled::default();
        }
        Filled { nodes: Some(self.nodes.clone()), partitions: std::mem::take(&mut self.filled) }
    }

    pub(super) fn interrupt_all(&mut self, error: &BrokerError) {
        self.nodes.iter().for_each(|node| node.interrupt_all(error));
        self.filled.extend(self.partitions.unwrap_or_default().all());
    }

    // ---- events ---------------------------------------------------------------------------------

    pub(super) fn partition(&self, topic: &TopicName) -> Partition {
        self.partitions.unwrap_or_default().of(topic)
    }

    pub(super) fn send(&mut self, partition: Partition, event: &BrokerEvent) {
        let mut waits = false;
        for node in self.nodes.iter() {
            waits |= node.push(partition, event);
        }
        if waits && !self.filled.contains(&partition) {
            self.filled.push(partition);
        }
    }

    fn store_event(&mut self, topic: &TopicName, change: TopicChange) {
        let partition = self.partition(topic);
        let sequence = &mut self.sequences[usize::from(partition.get())];
        sequence.number += 1;
        let event = StoredEvent::new(partition, *sequence, topic.clone(), change);
        self.send(partition, &BrokerEvent::Stored(event));
    }

    // ---- topics ---------------------------------------------------------------------------------

    fn new_epoch(&self) -> u64 {
        Epoch::id_from(self.random.next())
    }

    /// Finds a topic, or creates it. If it was rewound behind `seen`, begins an epoch.
    fn open(
        &mut self,
        name: &TopicName,
        seen: Option<Position>,
        now: Instant,
    ) -> Result<&mut MemoryTopic, BrokerError> {
        if !self.topics.contains_key(name) {
            self.make_room(now)?;
            let epoch = self.new_epoch();
            self.topics.insert(name.clone(), MemoryTopic::new(epoch, now));
        }
        let epoch = self.new_epoch();
        let mut began = None;
        if let Some(topic) = self.topics.get_mut(name)
            && let Some(seen) = seen
            && topic.epochs.was_rewound(seen, topic.top)
        {
            topic.epochs.begin(epoch, topic.top);
            began = Some(topic.position());
        }
        if let Some(position) = began {
            self.store_event(name, TopicChange::EpochBegan(position));
        }
        self.topics.get_mut(name).ok_or(BrokerError::Closed)
    }

    /// Finds a topic of a kind, or creates it.
    fn open_as(
        &mut self,
        kind: TopicKind,
        name: &TopicName,
        seen: Option<Position>,
        now: Instant,
    ) -> Result<&mut MemoryTopic, BrokerError> {
        self.open(name, None, now)?;
        self.measured(name, |topic| topic.use_as(kind, now))?;
        self.open(name, seen, now)
    }

    /// Changes a topic, and keeps the totals of all topics.
    fn measured<T>(
        &mut self,
        name: &TopicName,
        change: impl FnOnce(&mut MemoryTopic) -> Result<T, BrokerError>,
    ) -> Result<T, BrokerError> {
        let topic = self.topics.get_mut(name).ok_or(BrokerError::Closed)?;
        let (cost, messages) = (topic.log.cost(), topic.log.len());
        let result = change(topic);
        self.cost = self.cost - cost + topic.log.cost();
        self.messages = self.messages - messages + topic.log.len();
        result
    }

    /// Removes the topics that were not used for the longest time if the limit of topics is
    /// reached. Otherwise a client that uses one new topic after another would keep all others out.
    fn make_room(&mut self, now: Instant) -> Result<(), BrokerError> {
        if self.topics.len() < self.limits.topics {
            return Ok(());
        }
        if self.searched.is_none_or(|searched| now.saturating_duration_since(searched) >= SEARCH_INTERVAL) {
            self.searched = Some(now);
            let ranked =
                self.topics.iter().filter_map(|(name, topic)| Some((topic.removal_rank(now)?, name)));
            let mut ranked: Vec<_> = ranked.collect();
            ranked.sort_unstable();
            ranked.truncate(self.limits.topics.div_ceil(REMOVED_PART));
            let unused: Vec<TopicName> = ranked.into_iter().map(|(_, name)| name.clone()).collect();
            unused.iter().for_each(|name| drop(self.lose_topic(name)));
        }
        if self.topics.len() < self.limits.topics {
            return Ok(());
        }
        Err(BrokerError::Full(format!("{} topics in memory", self.limits.topics).into()))
    }

    /// Removes the oldest messages of all topics until they are within the limit.
    fn limit_bytes(&mut self) {
        while self.cost > self.limits.bytes {
            let Some((name, offset)) = self.order.pop_front() else { return };
            let _ = self.measured(&name, |topic| {
                while topic.log.oldest().is_some_and(|oldest| oldest <= offset) {
                    topic.log.pop_oldest();
                }
                Ok(())
            });
        }
        // Messages that their topics have removed remain in the list until it is twice as long.
        if self.order.len() > 2 * self.messages + 1024 {
            let topics = &self.topics;
            self.order.retain(|(name, offset)| {
                topics.get(name).and_then(|topic| topic.log.oldest()).is_some_and(|oldest| oldest <= *offset)
            });
        }
    }

    pub(super) fn lose_newest(&mut self, name: &TopicName, messages: u64) -> u64 {
        self.measured(name, |topic| Ok(topic.lose_newest(messages))).unwrap_or(0)
    }

    pub(super) fn lose_topic(&mut self, name: &TopicName) -> Option<MemoryTopic> {
        let topic = self.topics.remove(name)?;
        self.cost -= topic.log.cost();
        self.messages -= topic.log.len();
        for entry in topic.entries.values() {
            self.leases.set_owner(&(name.clone(), entry.key.clone()), entry.owner.as_ref(), None);
        }
        Some(topic)
    }

    // ---- operations -----------------------------------------------------------------------------

    pub(super) fn publish(
        &mut self,
        publication: Publication,
        now: Instant,
    ) -> Result<Published, BrokerError> {
        let Publication { topic: name, payload, seen, id, window, limits } = publication;
        let topic = self.open_as(TopicKind::Messages, &name, seen, now)?;
        let (epochs, top) = (topic.epochs.clone(), topic.top);
        if let Some(id) = &id
            && let Some(position) = self.ids.find(&name, id, now)
            && epochs.is_valid(position, top)
        {
            return Ok(Published::duplicate(position));
        }
        let message = self.measured(&name, |topic| {
            topic.log.set_limits(limits);
            Ok(topic.push(payload, now))
        })?;
        let position = message.position;
        if let Some(id) = id {
            self.ids.remember(name.clone(), id, position, window, now);
        }
        self.order.push_back((name.clone(), position.offset));
        self.store_event(&name, TopicChange::Message(message));
        self.limit_bytes();
        Ok(Published::new(position))
    }

    pub(super) fn read(
        &mut self,
        name: &TopicName,
        range: ReadRange,
        now: Instant,
    ) -> Result<History, BrokerError> {
        Ok(self.open_as(TopicKind::Messages, name, range.seen, now)?.read(&range))
    }

    pub(super) fn tops(
        &mut self,
        partition: Partition,
        topics: Vec<TopicSeen>,
        now: Instant,
    ) -> Result<PartitionTops, BrokerError> {
        limited("topics", topics.len(), TopicSeen::LIMIT)?;
        let mut tops = Vec::with_capacity(topics.len());
        for TopicSeen { topic, seen } in topics {
            self.open(&topic, seen, now)?;
            tops.push(self.measured(&topic, |topic| {
                topic.touch(now);
                Ok(topic.top())
            })?);
        }
        let sequence = self.sequences.get(usize::from(partition.get())).copied();
        let sequence = sequence.ok_or_else(|| BrokerError::Refused("the partition does not exist".into()))?;
        Ok(PartitionTops::new(sequence, tops))
    }

    // ---- maps -----------------------------------------------------------------------------------

    pub(super) fn change(&mut self, update: MapUpdate, now: Instant) -> Result<Changed, BrokerError> {
        let MapUpdate { topic: name, changes, owner, seen, max_entries } = update;
        limited("changes", changes.len(), MapUpdate::LIMIT)?;
        if owner.as_ref().is_some_and(|owner| !self.leases.is_alive(owner, now)) {
            return Err(BrokerError::LeaseEnded);
        }
        let topic = self.open_as(TopicKind::Map, &name, seen, now)?;
        let next = topic.epochs.at(topic.top + 1);
        let (mut made, mut entries) = (Vec::with_capacity(changes.len()), Vec::new());
        let mut owners = Vec::new();
        for change in changes {
            let is_made = topic.allows(&change, max_entries);
            made.push(is_made);
            if is_made {
                let owner = if change.value.is_some() { owner.clone() } else { None };
                let change = EntryChange { key: change.key, value: change.value, owner };
                owners.push((change.key.clone(), topic.set(&change, next), change.owner.clone()));
                entries.push(change);
            }
        }
        if entries.is_empty() {
            return Ok(Changed::new(topic.position(), made));
        }
        topic.top += 1;
        for (key, before, after) in owners {
            self.leases.set_owner(&(name.clone(), key), before.as_ref(), after.as_ref());
        }
        self.store_event(&name, TopicChange::Entries(next, entries));
        Ok(Changed::new(next, made))
    }

    pub(super) fn snapshot(
        &mut self,
        name: &TopicName,
        seen: Option<Position>,
        now: Instant,
    ) -> Result<Snapshot, BrokerError> {
        Ok(self.open_as(TopicKind::Map, name, seen, now)?.snapshot())
    }

    // ---- leases ---------------------------------------------------------------------------------

    pub(super) fn renew(&mut self, lease: NodeLease, now: Instant) -> Result<(), BrokerError> {
        self.leases.renew(lease, now)
    }

    pub(super) fn end_lost_leases(&mut self, now: Instant) -> Vec<NodeId> {
        let lost = self.leases.take_lost(now);
        lost.iter().for_each(|node| self.end_lease(node));
        lost
    }

    pub(super) fn end_lease(&mut self, node: &NodeId) {
        let mut by_topic: BTreeMap<TopicName, Vec<EntryChange>> = BTreeMap::new();
        for (topic, key) in self.leases.end(node) {
            by_topic.entry(topic).or_default().push(EntryChange::new(key, None));
        }
        for (name, entries) in by_topic {
            for entries in entries.chunks(MapUpdate::LIMIT) {
                let Some(topic) = self.topics.get_mut(&name) else { continue };
                topic.top += 1;
                let position = topic.position();
                for change in entries {
                    topic.set(change, position);
                }
                self.store_event(&name, TopicChange::Entries(position, entries.to_vec()));
            }
        }
    }
}

/// Refuses an operation with too many parts.
fn limited(parts: &str, number: usize, limit: usize) -> Result<(), BrokerError> {
    if number <= limit {
        return Ok(());
    }
    Err(BrokerError::Refused(format!("{number} {parts}; at most {limit} are allowed").into()))
}
