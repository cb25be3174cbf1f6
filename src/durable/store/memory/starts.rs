//! `MemoryStarts`: starts of timers in transactions of the program.

use super::{MemoryStore, disk::MemoryDisk, transaction::MemoryTransaction};
use crate::durable::{
    id::TimerId,
    store::{change::NewTimer, error::StoreError, remembered::Remembered, start_in::StartTimers},
};
use std::{any::Any, time::Duration};

/// Starts timers in the transactions of one store.
#[derive(Debug)]
pub(super) struct MemoryStarts {
    disk: MemoryDisk,
    /// The number of each attached topic.
    topics: Vec<usize>,
    key_memory: Duration,
}

impl MemoryStarts {
    pub(super) fn new(store: &MemoryStore) -> Self {
        MemoryStarts { disk: store.disk.clone(), topics: store.topics.clone(), key_memory: store.key_memory }
    }
}

impl StartTimers for MemoryStarts {
    fn start_in(&self, connection: &mut dyn Any, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        let transaction = connection.downcast_mut::<MemoryTransaction>();
        let is_own = |transaction: &&mut MemoryTransaction| transaction.disk() == self.disk.id();
        let transaction = transaction.filter(is_own).ok_or(StoreError::OtherStore)?;
        let topic = *self.topics.get(timer.topic).ok_or(StoreError::OtherStore)?;
        transaction.start(topic, timer, &Remembered::at(now, self.key_memory))
    }
}
