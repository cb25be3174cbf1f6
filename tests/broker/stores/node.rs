//! `Node`: a started broker and its events.

use crate::support::wait::{PATIENCE, done, wait_until_or};
use bytes::Bytes;
use netwheel::{
    Result,
    broker::{
        Broker, MessageId, Position, TopicName,
        store::{
            BrokerEvent, BrokerSink, BrokerStart, History, Partitions, Publication, Published, ReadFrom,
            ReadRange, TopicSeen, TopicTop,
        },
    },
    time::{Clock, SystemClock},
};
use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};

struct Sink(Mutex<Sender<BrokerEvent>>);

impl BrokerSink for Sink {
    fn handle(&self, event: BrokerEvent) {
        let _ = self.0.lock().unwrap().send(event);
    }
}

pub(super) struct Node<B> {
    pub(super) broker: B,
    pub(super) events: Receiver<BrokerEvent>,
    pub(super) partitions: Partitions,
}

pub(super) fn topic() -> TopicName {
    TopicName::new("lobby").unwrap()
}

impl<B: Broker> Node<B> {
    pub(super) fn start(broker: B) -> Self {
        Self::try_start(broker, 64).unwrap()
    }

    pub(super) fn try_start(broker: B, partitions: u16) -> Result<Self> {
        Self::start_on(Arc::new(SystemClock), broker, partitions)
    }

    /// Starts a broker on a clock.
    pub(super) fn start_on(clock: Arc<dyn Clock>, broker: B, partitions: u16) -> Result<Self> {
        static SEED: AtomicU64 = AtomicU64::new(1);
        let (sender, events) = channel();
        let partitions = Partitions::new(partitions)?;
        let sink = Arc::new(Sink(Mutex::new(sender)));
        let seed = SEED.fetch_add(1, Ordering::Relaxed) ^ (u64::from(std::process::id()) << 32);
        broker.start(BrokerStart::new(partitions, sink, clock, seed))?;
        Ok(Node { broker, events, partitions })
    }

    /// Follows the partition of the topic, and waits until that is in place.
    pub(super) fn follow(&self) {
        self.broker.follow(self.partitions.of(&topic()), true);
        self.wait_for(|event| matches!(event, BrokerEvent::Following(_)).then_some(()));
    }

    /// Returns what `find` finds in the next events.
    pub(super) fn wait_for<T>(&self, mut find: impl FnMut(&BrokerEvent) -> Option<T>) -> T {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("an event arrives in time");
            if let Some(found) = find(&event) {
                return found;
            }
        }
    }

    pub(super) fn publication(&self, payload: impl Into<Bytes>) -> Publication {
        Publication::new(topic(), payload.into())
    }

    pub(super) fn publish(&self, payload: impl Into<Bytes>) -> Result<Published> {
        done(self.broker.publish(self.publication(payload)))
    }

    /// Publishes until it succeeds, and returns the position. The message has an id, so it is
    /// stored once.
    pub(super) fn publish_at_last(&self, payload: &str) -> Position {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut publication = self.publication(payload.to_owned());
        let id = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        publication.id = Some(MessageId::new("tester", id).unwrap());
        let result = RefCell::new(done(self.broker.publish(publication.clone())));
        wait_until_or(
            || format!("the message is stored: {:?}", result.borrow()),
            || {
                if result.borrow().is_err() {
                    *result.borrow_mut() = done(self.broker.publish(publication.clone()));
                }
                result.borrow().is_ok()
            },
        );
        result.into_inner().unwrap().position
    }

    pub(super) fn read(&self, after: u64) -> Result<History> {
        done(self.broker.read(&topic(), ReadRange::new(ReadFrom::After(after))))
    }

    pub(super) fn top(&self, seen: Option<Position>) -> TopicTop {
        let question = vec![TopicSeen::new(topic(), seen)];
        let tops = done(self.broker.tops(self.partitions.of(&topic()), question)).unwrap();
        tops.topics[0].clone()
    }

    /// Returns whether a reader with this position is not told that it has missed messages.
    pub(super) fn recovers(&self, position: Position) -> bool {
        let history = self.read(position.offset).unwrap();
        history.epochs.is_valid(position, history.top)
            && history.oldest <= position.offset + 1
            && history.messages.len() as u64 == history.top - position.offset
    }
}
