//! The events that wait for one node.
//!
//! Invariants: the events of a partition are passed one after the other, in the order in which they
//! were pushed. A partition has at most [`LIMIT`] events and two messages about an interruption.
//! The lock is not held while the sink is called. A sink may cause further events, which wait for
//! the call that is under way.

use crate::broker::store::{
    broker::BrokerSink,
    error::BrokerError,
    event::BrokerEvent,
    partition::{Partition, Partitions},
};
use crate::sync::Locked;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The largest number of events of a partition that wait for a node.
const LIMIT: usize = 4096;

pub(super) struct Outboxes {
    sink: Arc<dyn BrokerSink>,
    partitions: Vec<Locked<Outbox>>,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Outbox {
    is_followed: bool,
    events: VecDeque<BrokerEvent>,
    /// Whether a thread passes events at the moment.
    is_draining: bool,
}

impl Outboxes {
    pub(super) fn new(partitions: Partitions, sink: Arc<dyn BrokerSink>) -> Self {
        let partitions = partitions.all().map(|_| Locked::default()).collect();
        Outboxes { sink, partitions, is_closed: AtomicBool::new(false) }
    }

    pub(super) fn follow(&self, partition: Partition, on: bool) {
        self.with(partition, |outbox| {
            if on && !outbox.is_followed {
                outbox.events.push_back(BrokerEvent::Following(partition));
            }
            outbox.is_followed = on;
            let unwanted = if on { VecDeque::new() } else { std::mem::take(&mut outbox.events) };
            ((), unwanted)
        });
    }

    /// Adds an event if the node follows the partition. Returns whether it waits.
    pub(super) fn push(&self, partition: Partition, event: &BrokerEvent) -> bool {
        self.with(partition, |outbox| {
            if !outbox.is_followed {
                return (false, VecDeque::new());
            }
            if outbox.events.len() < LIMIT {
                outbox.events.push_back(event.clone());
                return (true, VecDeque::new());
            }
            let dropped = outbox.interrupt(partition, BrokerError::Full("the node is too slow".into()));
            (true, dropped)
        })
        .unwrap_or(false)
    }

    /// Interrupts the delivery of all partitions that the node follows.
    pub(super) fn interrupt_all(&self, error: &BrokerError) {
        for number in 0..self.partitions.len() {
            let partition = Partition::new(u16::try_from(number).unwrap_or(u16::MAX));
            self.with(partition, |outbox| {
                let dropped = if outbox.is_followed {
                    outbox.interrupt(partition, error.clone())
                } else {
                    VecDeque::new()
                };
                ((), dropped)
            });
        }
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Passes the events of a partition that wait, unless another call does so.
    pub(super) fn drain(&self, partition: Partition) {
        let Some(outbox) = self.partitions.get(usize::from(partition.get())) else { return };
        let mut is_first = true;
        while let Some(event) = outbox.change(|outbox| (outbox.next(is_first), ())) {
            is_first = false;
            if !self.is_closed.load(Ordering::Acquire) {
                self.sink.handle(event);
            }
        }
    }

    fn with<T, D>(&self, partition: Partition, change: impl FnOnce(&mut Outbox) -> (T, D)) -> Option<T> {
        self.partitions.get(usize::from(partition.get())).map(|outbox| outbox.change(change))
    }
}

impl Outbox {
    /// Returns the next event. `is_first` says that the caller has not passed any yet.
    fn next(&mut self, is_first: bool) -> Option<BrokerEvent> {
        if is_first && self.is_draining {
            return None;
        }
        let event = self.events.pop_front();
        self.is_draining = event.is_some();
        event
    }

    fn interrupt(&mut self, partition: Partition, error: BrokerError) -> VecDeque<BrokerEvent> {
        let again = [BrokerEvent::Interrupted(partition, error), BrokerEvent::Following(partition)];
        std::mem::replace(&mut self.events, again.into())
    }
}
