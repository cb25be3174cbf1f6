//! `MemoryTransaction`: changes of the tables that are made together or not at all.

use super::tables::{Tables, Timer, Write};
use crate::durable::{
    id::TimerId,
    store::{change::NewTimer, error::StoreError, remembered::Remembered},
};

/// The session of changes that every node looks for.
const NO_SESSION: u64 = 0;

/// A transaction of a [`MemoryStore`](super::MemoryStore), in which the program stores rows of its
/// own.
///
/// [`StoreTransaction::connection`](crate::durable::StoreTransaction::connection) returns it in
/// [`Due::done_with`](crate::durable::Due::done_with) and
/// [`DurableTimers::transaction`](crate::durable::DurableTimers::transaction).
/// [`start_in`](crate::durable::StartTimer::start_in) accepts the `StoreTransaction`. Rows have a
/// name and a value, in place of the tables of a database.
///
/// ```
/// use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, MemoryDisk, MemoryTransaction}};
/// use netwheel::durable::{Retry, Topic};
/// use std::time::Duration;
///
/// let disk = MemoryDisk::new();
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let order = |due: Due<String>| {
///     let name = due.payload().clone();
///     due.done_with(move |transaction| {
///         let rows = transaction.connection::<MemoryTransaction>()?;
///         rows.put(&name, b"shipped");
///         Ok(())
///     });
/// };
/// let timers = DurableTimers::builder(disk.open()?)
///     .topic(Topic::new("order", Late::RunOnce, Retry::never(), order))
///     .start(&group)?;
/// timers.at("order", Duration::ZERO, &"order 17").start().wait()?;
/// while disk.row("order 17").is_none() {
///     std::thread::yield_now();
/// }
/// timers.close().wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryTransaction {
    /// The [id](super::MemoryDisk::id) of the disk.
    disk: usize,
    /// The store that has begun it.
    session: u64,
    /// Those of the disk, for as long as the transaction is open.
    tables: Tables,
    /// The changes that undo those of the transaction.
    inverse: Vec<Write>,
    /// Timers that were started by the program, and that the engine has to look for.
    started: Vec<i64>,
}

/// A place in a transaction to which it can be rolled back.
#[derive(Clone, Copy)]
pub(super) struct Savepoint {
    writes: usize,
    starts: usize,
}

impl MemoryTransaction {
    /// Returns the value of a row of the program.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.tables.rows.get(name).map(Vec::as_slice)
    }

    /// Returns the names and values of the program's rows, in the order of the names.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.tables.rows.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Stores a row of the program. Replaces one with the same name.
    pub fn put(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.write(Write::Row(name.to_owned(), Some(value.into())));
    }

    /// Removes a row of the program. Returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let is_stored = self.tables.rows.contains_key(name);
        if is_stored {
            self.write(Write::Row(name.to_owned(), None));
        }
        is_stored
    }

    pub(super) fn begin(disk: usize, session: u64, tables: Tables) -> Self {
        MemoryTransaction { disk, session, tables, inverse: Vec::new(), started: Vec::new() }
    }

    /// Keeps the changes that were made. Returns the changes that undo them, and the timers that
    /// the program has started.
    pub(super) fn keep_changes(&mut self) -> (Vec<Write>, Vec<i64>) {
        (std::mem::take(&mut self.inverse), std::mem::take(&mut self.started))
    }

    /// Undoes the changes that are not kept, and returns the tables.
    pub(super) fn end(&mut self) -> Tables {
        self.roll_back_to(Savepoint { writes: 0, starts: 0 });
        std::mem::take(&mut self.tables)
    }

    /// Returns the id of the disk.
    pub(super) fn disk(&self) -> usize {
        self.disk
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    pub(super) fn write(&mut self, write: Write) {
        let inverse = self.tables.write(write);
        self.inverse.push(inverse);
    }

    pub(super) fn savepoint(&self) -> Savepoint {
        Savepoint { writes: self.inverse.len(), starts: self.started.len() }
    }

    pub(super) fn roll_back_to(&mut self, savepoint: Savepoint) {
        self.tables.undo(self.inverse.drain(savepoint.writes..));
        self.started.truncate(savepoint.starts);
    }

    /// Changes a stored timer. Returns whether there is one.
    pub(super) fn change(&mut self, id: i64, change: impl FnOnce(&mut Timer)) -> bool {
        let Some(mut timer) = self.tables.timers.get(&id).cloned() else { return false };
        change(&mut timer);
        self.put_timer(id, timer, self.session);
        true
    }

    /// Stores a new timer, and returns its id.
    pub(super) fn add(&mut self, timer: Timer) -> i64 {
        self.add_for(timer, self.session)
    }

    fn add_for(&mut self, timer: Timer, session: u64) -> i64 {
        let id = self.tables.last_id.saturating_add(1);
        self.write(Write::LastId(id));
        self.put_timer(id, timer, session);
        id
    }

    /// Stores a timer, and numbers the change.
    fn put_timer(&mut self, id: i64, mut timer: Timer, session: u64) {
        self.tables.last_change += 1;
        timer.changed = (self.tables.last_change, session);
        self.write(Write::Timer(id, Some(Box::new(timer))));
    }

    /// Looks for a timer that has the key of a new one.
    pub(super) fn known_key(&self, topic: usize, timer: &NewTimer, remembered: &Remembered) -> Option<Known> {
        let key = (topic, timer.idempotency_key.clone()?);
        if let Some(id) = self.tables.keys.get(&key) {
            return Some(Known::Stored(*id));
        }
        let (id, ended) = self.tables.ended_keys.get(&key)?;
        remembered.contains(*ended).then_some(Known::Ended(*id))
    }

    /// Stores a timer for the program, unless its key is known.
    pub(super) fn start(
        &mut self,
        topic: usize,
        timer: &NewTimer,
        remembered: &Remembered,
    ) -> Result<TimerId, StoreError> {
        let id = match self.known_key(topic, timer, remembered) {
            Some(Known::Ended(id)) => id,
            Some(Known::Stored(id)) => {
                let stored = self.tables.timers.get(&id).and_then(|stored| stored.schedule.as_deref());
                if timer.has_other_schedule(stored) {
                    return Err(StoreError::OtherSchedule);
                }
                id
            }
            None => {
                // Of no session, so that the engine of each node looks for it.
                let mut timer = Timer::new(topic, timer);
                let partitions = self.tables.partitions.len().max(1) as u64;
                timer.partition = (self.tables.last_id.unsigned_abs() % partitions) as u32;
                let id = self.add_for(timer, NO_SESSION);
                self.started.push(id);
                id
            }
        };
        Ok(TimerId::new(id))
    }
}

/// A timer that has a key.
pub(super) enum Known {
    /// Pending or dead.
    Stored(i64),
    /// It has ended a short while ago.
    Ended(i64),
}
