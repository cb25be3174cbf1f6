//! Where timers are kept.

mod change;
mod dead_letters;
mod error;
mod lease;
mod listing;
mod maintenance;
mod memory;
mod ownership;
#[cfg(feature = "durable-postgres")]
mod postgres;
mod remembered;
mod row;
mod server_clock;
mod sharing_settings;
#[cfg(feature = "durable-sqlite")]
mod sqlite;
mod start_in;
mod topic_set;
mod transaction;

pub use change::{Change, LoadRange, Loaded, NewTimer, Outcome};
pub use dead_letters::DeadLetters;
pub use error::StoreError;
pub use lease::{ClockReading, Lease};
pub use listing::{TimerFilter, TimerInfo, TimerState, TopicCounts};
pub use maintenance::{BackupWork, Maintenance};
pub use memory::{MemoryDatabase, MemoryDisk, MemoryStore, MemoryTransaction};
#[cfg(feature = "durable-postgres")]
pub use postgres::{PostgresStore, PostgresStoreBuilder};
pub use row::{Begun, DueKey, Held, TimerRow};
#[cfg(feature = "durable-sqlite")]
pub use sqlite::SqliteStore;
pub use start_in::{StartIn, Starter};
pub use topic_set::TopicSet;
pub use transaction::{Effect, StoreTransaction};

use std::{collections::BTreeSet, path::Path};

/// A place where timers survive the program.
///
/// The engine calls a store from one thread of its own, so a store may block. It must not return
/// from [`commit`](TimerStore::commit) before the changes survive a power failure.
#[allow(unused_variables, reason = "default methods ignore their arguments")]
pub trait TimerStore: Send {
    /// Sets the topics of the program. Rows and changes refer to them by index. Returns the numbers
    /// of timers of all topics in the store, including topics that the program does not have.
    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError>;

    /// Applies the changes in their order, in one transaction, and returns an outcome for each of
    /// them. `now` is the wall time in milliseconds since 1970.
    ///
    /// If the effects of ends take long, the store may apply only the first changes, at least one.
    /// It returns the outcomes of these, and the caller passes the others again.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the transaction failed; none of the changes was made then. After a
    /// [transient](StoreError::is_transient) error, the caller may pass the same changes again.
    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError>;

    /// Returns pending timers in the order of their keys, of those attached topics that the range
    /// has. Returns at least one timer if there is one. A store may return less than the limits of
    /// the range allow, but then the answer is not [complete](Loaded::is_complete).
    fn load(&mut self, range: LoadRange) -> Result<Loaded, StoreError>;

    /// Returns pending periodic timers of the attached topics, and of this node, that are behind
    /// `after` in the order of their keys. Leaves out retries, timers that a command has moved, and
    /// the payloads.
    fn far_periodic(&mut self, after: DueKey, limit: usize) -> Result<Vec<TimerRow>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns timers for operators, in the order of their ids.
    fn list(&mut self, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError>;

    /// Returns the numbers of timers of each topic. Must not count rows, because there may be
    /// millions of them.
    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError>;

    /// Pauses a topic, or lets it go on, for all nodes. [`counts`](TimerStore::counts) then says
    /// so. Returns whether the store has the topic.
    ///
    /// # Errors
    ///
    /// [`StoreError::Effect`] if the store does not offer this.
    fn set_paused(&mut self, topic: &str, is_paused: bool) -> Result<bool, StoreError> {
        Err(StoreError::Effect("the store cannot pause topics".into()))
    }

    /// Removes dead letters in a transaction of its own, and returns how many. `now` is the wall
    /// time in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// [`StoreError::Effect`] if the store does not offer this.
    fn remove_dead(&mut self, letters: &DeadLetters, now: i64) -> Result<u64, StoreError> {
        Err(StoreError::Effect("the store cannot remove dead letters".into()))
    }

    /// Makes dead letters pending in a transaction of its own, with their attempts reset. The
    /// oldest is due at the first of `dues`, and so on; at most as many letters are selected as
    /// there are times. Returns an item for each letter: the timer, if the engine may have to load
    /// it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Effect`] if the store does not offer this.
    fn retry_dead(
        &mut self,
        letters: &DeadLetters,
        dues: &[i64],
    ) -> Result<Vec<Option<TimerRow>>, StoreError> {
        Err(StoreError::Effect("the store cannot retry dead letters".into()))
    }

    /// Runs a program's own work in a transaction of its own, and commits it if the work succeeds.
    ///
    /// # Errors
    ///
    /// [`StoreError::Effect`] if the work fails, or if the store does not offer this.
    fn transaction(&mut self, work: &mut Effect) -> Result<(), StoreError> {
        Err(StoreError::Effect("the store has no transactions for programs".into()))
    }

    /// Sets whether requests follow each other closely. While they do, a store may keep locks or a
    /// connection between transactions that are expensive to get. It must not exclude other
    /// connections for longer than a transaction. Called with `false` before the thread sleeps
    /// until the next request. Between the changes of a transaction, it may sleep for up to
    /// `max_commit_delay`.
    fn set_busy(&mut self, is_busy: bool) {}

    /// Begins a copy of the store at `path`, and returns the work that makes it. The work is done
    /// on a thread of its own, while the store is used.
    ///
    /// # Errors
    ///
    /// [`StoreError::Failed`] if the store does not offer this. The store goes on after an error.
    fn backup(&mut self, path: &Path) -> Result<BackupWork, StoreError> {
        Err(StoreError::failed("stores of this kind are backed up with the tools of their database"))
    }

    /// Does the store's own work, such as copying a log to its database. Called after a
    /// transaction, when its outcomes were delivered, so that no request waits for it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if nothing may be written any more. Failures of work that the next call tries
    /// again are counted instead.
    fn maintain(&mut self) -> Result<Maintenance, StoreError> {
        Ok(Maintenance::default())
    }

    /// Returns whether the last program that used the store has ended without
    /// [`release`](TimerStore::release). Called after [`attach`](TimerStore::attach). A store with
    /// several nodes says this of [each partition](Lease::suspects).
    fn was_interrupted(&self) -> bool {
        false
    }

    /// Returns whether several nodes use the store, so that a run must be claimed before it fires,
    /// and [`renew`](TimerStore::renew) must be called.
    fn needs_claims(&self) -> bool {
        false
    }

    /// Renews the leases of this node, takes over partitions without an owner, and returns those
    /// that it owns now. Called several times within the duration of a lease. `None` if the store
    /// has one node only.
    ///
    /// `busy`: the partitions of at-most-once runs, which the store has ended or is about to end,
    /// and whose handlers have not answered. They are given back like those with claimed runs.
    fn renew(&mut self, _busy: &BTreeSet<u32>) -> Result<Option<Lease>, StoreError> {
        Ok(None)
    }

    /// Returns whether other connections may store timers, so that
    /// [`changed_by_others`](TimerStore::changed_by_others) is called about once per second. It is
    /// also called after each renewal, and after
    /// [`StartTimer::start_in`](crate::durable::StartTimer::start_in).
    fn has_other_writers(&self) -> bool {
        false
    }

    /// Returns how connections of the program start timers. Called after
    /// [`attach`](TimerStore::attach). `None` if they cannot.
    fn starter(&self) -> Option<Starter> {
        None
    }

    /// Returns the present time by the clock on which all nodes of the store agree, as far as it is
    /// known. Called after [`attach`](TimerStore::attach) and after each renewal. `None` if timers
    /// are due by the clock of this machine.
    fn clock(&mut self) -> Option<ClockReading> {
        None
    }

    /// Makes the following renewals give back all partitions without open runs of this node, and
    /// take over none. Called before the store is closed.
    fn drain(&mut self) {}

    /// Returns the timers of this node's partitions that other nodes and connections have stored or
    /// moved since the last call, as far as they are due by `until`. Returns about `max_bytes` at
    /// most, but at least one timer if there is one. An answer that is not
    /// [complete](Loaded::is_complete) is continued by the next call.
    fn changed_by_others(&mut self, until: i64, max_bytes: usize) -> Result<Loaded, StoreError> {
        Ok(Loaded { rows: Vec::new(), is_complete: true })
    }

    /// Gives the partitions of this node back, before it stops, and notes that it has stopped.
    fn release(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
