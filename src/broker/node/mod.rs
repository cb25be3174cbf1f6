//! `TopicNode`: the topics of one node, their partitions, and the lease of the node.
//!
//! It runs on the threads of the broker and of the program. Its periodic tasks run on one event
//! loop. Invariants: no lock is held while the broker or a topic is called, except that a
//! partition's lock is held while a topic is asked whether it rests. A partition is followed while
//! it has topics that are followed.

mod followed;
mod lease_event;
mod metrics;
mod node_lease_watch;
mod node_partition;
mod partition_watch;
mod router;
#[cfg(test)]
mod tests;
mod upkeep;
#[cfg(test)]
mod watch_tests;

pub(in crate::broker) use followed::FollowedTopic;
pub use lease_event::LeaseEvent;
pub(in crate::broker) use lease_event::OnLease;
pub use metrics::BrokerMetrics;
pub(in crate::broker) use metrics::Metrics;

use crate::broker::store::{
    Broker, BrokerError, BrokerStart, NodeId, Partition, PartitionTops, Partitions, Position, Sequence,
    TopicName, TopicSeen,
};
use crate::{
    clock::TimeSource,
    error::{Error, Resource, Result},
    event_loop::EventLoop,
    sync::{Completion, Locked, Permits, Random, completion},
};
use node_lease_watch::NodeLeaseWatch;
use node_partition::NodePartition;
use partition_watch::Ask;
use router::Router;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The settings of a node.
#[derive(Clone)]
pub(in crate::broker) struct NodeSettings {
    pub(in crate::broker) name: Option<String>,
    pub(in crate::broker) partitions: Partitions,
    pub(in crate::broker) max_topics: usize,
    pub(in crate::broker) max_pending: usize,
    pub(in crate::broker) max_payload: usize,
    pub(in crate::broker) verify_interval: Duration,
    pub(in crate::broker) lease: Duration,
    pub(in crate::broker) on_lease: Option<OnLease>,
}

impl Default for NodeSettings {
    fn default() -> Self {
        NodeSettings {
            name: None,
            partitions: Partitions::default(),
            max_topics: 65_536,
            max_pending: 16_384,
            max_payload: 64 << 10,
            verify_interval: Duration::from_secs(10),
            lease: Duration::from_secs(10),
            on_lease: None,
        }
    }
}

pub(in crate::broker) struct TopicNode {
    pub(in crate::broker) broker: Arc<dyn Broker>,
    pub(in crate::broker) event_loop: EventLoop,
    pub(in crate::broker) metrics: Arc<Metrics>,
    pub(in crate::broker) settings: NodeSettings,
    /// Permits for publications without an answer.
    pub(in crate::broker) pending: Permits,
    time: TimeSource,
    random: Random,
    topics: Locked<BTreeMap<TopicName, Weak<dyn FollowedTopic>>>,
    parts: Vec<NodePartition>,
    lease: Locked<NodeLeaseWatch>,
    is_closed: AtomicBool,
}

impl TopicNode {
    /// Starts a broker for a node.
    pub(in crate::broker) fn start(
        broker: Arc<dyn Broker>,
        event_loop: EventLoop,
        settings: NodeSettings,
    ) -> Result<Arc<Self>> {
        let random = Random::new(event_loop.shared.random.next());
        let name = settings.name.clone().unwrap_or_else(|| format!("node-{:016x}", random.next()));
        let node = NodeId::new(name, random.next())?;
        let node = Arc::new(TopicNode {
            broker,
            metrics: Arc::default(),
            pending: Permits::new(settings.max_pending),
            time: event_loop.shared.time.clone(),
            event_loop,
            topics: Locked::default(),
            parts: settings.partitions.all().map(|_| NodePartition::default()).collect(),
            lease: Locked::new(NodeLeaseWatch::new(node, settings.lease)),
            is_closed: AtomicBool::new(false),
            random,
            settings,
        });
        let router = Arc::new(Router::new(Arc::downgrade(&node)));
        let (partitions, clock) = (node.settings.partitions, node.time.clock());
        node.broker.start(BrokerStart::new(partitions, router, clock, node.random.next()))?;
        node.start_upkeep()?;
        Ok(node)
    }

    pub(in crate::broker) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    // ---- topics ---------------------------------------------------------------------------------

    /// Finds a topic, or adds the result of `create`.
    pub(in crate::broker) fn open(
        &self,
        name: &TopicName,
        create: impl FnOnce() -> Arc<dyn FollowedTopic>,
    ) -> Result<Arc<dyn FollowedTopic>> {
        if self.is_closed() {
            return Err(BrokerError::Closed.into());
        }
        if let Some(found) = self.topics.read(|topics| topics.get(name).and_then(Weak::upgrade)) {
            return Ok(found);
        }
        // Created without the lock. If another thread was faster, its topic is the one.
        let created = create();
        let (topic, limit) = (created.clone(), self.settings.max_topics);
        self.topics.change(|topics| {
            if let Some(found) = topics.get(name).and_then(Weak::upgrade) {
                return (Ok(found), None);
            }
            if topics.len() >= limit {
                return (Err(Error::Full { resource: Resource::Topics, limit }), None);
            }
            let replaced = topics.insert(name.clone(), Arc::downgrade(&topic));
            self.metrics.topics.add_shared(u64::from(replaced.is_none()));
            (Ok(topic), replaced)
        })
    }

    /// Forgets a topic that has been dropped.
    pub(in crate::broker) fn forget(&self, name: &TopicName) {
        self.topics.change(|topics| {
            // Another one may have the name by now.
            let is_dropped = topics.get(name).is_some_and(|topic| topic.strong_count() == 0);
            let removed = if is_dropped { topics.remove(name) } else { None };
            self.metrics.topics.add_shared(if is_dropped { u64::MAX } else { 0 });
            ((), removed)
        });
    }

    /// Follows a topic that has got its first member.
    pub(in crate::broker) fn activate(&self, topic: Arc<dyn FollowedTopic>) {
        let partition = self.partition(topic.name());
        let Some(part) = self.part(partition) else { return };
        if part.add(topic) {
            self.metrics.followed_partitions.add_shared(1);
        }
        if self.is_closed() {
            // Another thread may have closed the node before the topic was added.
            return self.release_topics(part);
        }
        part.pass_follow(|on| self.broker.follow(partition, on));
    }

    /// Ends following a topic if it rests.
    pub(in crate::broker) fn deactivate(&self, topic: Arc<dyn FollowedTopic>) {
        let partition = self.partition(topic.name());
        let Some(part) = self.part(partition) else { return };
        if part.remove_resting(&topic) {
            self.metrics.followed_partitions.add_shared(u64::MAX);
        }
        part.pass_follow(|on| self.broker.follow(partition, on));
    }

    /// Returns the name of the node, which all its incarnations have.
    pub(in crate::broker) fn name(&self) -> String {
        self.lease.read(|lease| lease.node().name().to_owned())
    }

    pub(in crate::broker) fn partition(&self, topic: &TopicName) -> Partition {
        self.settings.partitions.of(topic)
    }

    fn part(&self, partition: Partition) -> Option<&NodePartition> {
        self.parts.get(usize::from(partition.get()))
    }

    fn all_parts(&self) -> impl Iterator<Item = (Partition, &NodePartition)> {
        self.settings.partitions.all().zip(&self.parts)
    }

    // ---- verification ---------------------------------------------------------------------------

    /// Asks the next question about a partition, if there is one.
    fn verify(self: &Arc<Self>, partition: Partition) {
        let Some(part) = self.part(partition) else { return };
        let Some((question, ask)) = part.next_ask() else { return };
        let topics = if ask == Ask::Topics { part.topics() } else { Vec::new() };
        // A topic without a position reads its first one at the moment. The answer of that read may
        // be older than the one to this question.
        let seen = topics.into_iter().map(|topic| {
            let seen = topic.seen();
            (topic, seen)
        });
        let mut seen: Vec<_> = seen.collect();
        seen.reverse();
        self.metrics.verifications.add_shared(1);
        self.ask(Question { partition, question, rest: seen, asked: Vec::new(), first: None });
    }

    /// Asks for a part of the topics, and then for the others.
    fn ask(self: &Arc<Self>, mut question: Question) {
        let others = question.rest.len().saturating_sub(TopicSeen::LIMIT);
        question.asked = question.rest.split_off(others);
        let topics = question.asked.iter().map(|(topic, seen)| TopicSeen::new(topic.name().clone(), *seen));
        let node = Arc::downgrade(self);
        self.broker.tops(question.partition, topics.collect()).on_complete(move |tops| {
            if let Some(node) = node.upgrade() {
                node.verified(question, tops);
            }
        });
    }

    fn verified(self: &Arc<Self>, mut question: Question, tops: Result<PartitionTops>) {
        let Some(part) = self.part(question.partition) else { return };
        match tops {
            Ok(tops) if tops.topics.len() == question.asked.len() => {
                for ((topic, seen), top) in question.asked.drain(..).zip(tops.topics) {
                    topic.verified(seen, top);
                }
                let first = *question.first.get_or_insert(tops.sequence);
                if !question.rest.is_empty() {
                    return self.ask(question);
                }
                part.answered(question.question, first);
            }
            answer => {
                let error = answer.map_or_else(|error| error, |_| "an answer for other topics".into());
                log::debug!("partition {} was not verified: {error:#}", question.partition);
                self.metrics.verify_failures.add_shared(1);
                part.failed(question.question);
            }
        }
        self.verify(question.partition);
    }

    // ---- end ------------------------------------------------------------------------------------

    /// Ends the lease and closes the broker. Everything that waits fails.
    pub(in crate::broker) fn close(self: &Arc<Self>) -> Completion {
        let was_closed = self.is_closed.swap(true, Ordering::AcqRel);
        self.all_parts().for_each(|(_, part)| self.release_topics(part));
        if was_closed {
            return self.broker.close();
        }
        self.leave()
    }

    fn release_topics(&self, part: &NodePartition) {
        let topics = part.take_topics();
        if !topics.is_empty() {
            self.metrics.followed_partitions.add_shared(u64::MAX);
        }
        topics.into_iter().for_each(|topic| topic.close());
    }

    /// Ends the lease, and then closes the broker.
    fn leave(&self) -> Completion {
        let (completer, completion) = completion(None);
        let broker = self.broker.clone();
        self.broker.end_lease(&self.lease.read(|lease| lease.node().clone())).on_complete(move |_| {
            broker.close().on_complete(move |closed| completer.complete(closed));
        });
        completion
    }
}

impl Drop for TopicNode {
    fn drop(&mut self) {
        if !self.is_closed() {
            self.leave().detach();
        }
    }
}

/// A question about a partition and its topics.
struct Question {
    partition: Partition,
    question: u64,
    /// Topics that were not asked for yet.
    rest: Vec<(Arc<dyn FollowedTopic>, Option<Position>)>,
    asked: Vec<(Arc<dyn FollowedTopic>, Option<Position>)>,
    /// The sequence of the first answer.
    first: Option<Sequence>,
}
