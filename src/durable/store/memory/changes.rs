//! Changes of a transaction.

use super::{
    tables::{PartitionRow, Timer, View, Write},
    transaction::{Known, MemoryTransaction},
};
use crate::durable::{
    id::TimerId,
    store::{
        change::{Change, NewTimer, Outcome},
        error::StoreError,
        listing::TimerState,
        ownership::Ownership,
        remembered::Remembered,
        row::{Begun, Held, TimerRow},
        transaction::{Effect, StoreTransaction},
    },
};
use std::{collections::BTreeSet, time::Duration};

/// The number of remembered keys that a transaction removes at most.
const KEYS_REMOVED_AT_ONCE: usize = 1000;

/// What a node of several knows while it makes changes.
pub(super) struct Sharing<'a> {
    pub(super) node: u64,
    pub(super) ownership: &'a mut Ownership,
    /// Timers that were not as the engine expected.
    pub(super) recheck: &'a mut BTreeSet<i64>,
    /// The clock of the database, in microseconds since 1970.
    pub(super) now: i64,
}

/// A transaction with changes of timers.
pub(super) struct MemoryBatch<'a> {
    transaction: &'a mut MemoryTransaction,
    /// The number of each attached topic.
    topics: &'a [usize],
    now: i64,
    remembered: Remembered,
    has_ended_keys: bool,
    sharing: Option<Sharing<'a>>,
}

impl Sharing<'_> {
    /// Returns whether a run does not belong to this node any more. The end of a lease counts for
    /// claims only: until another node has taken over, a slow node may end its runs.
    fn is_stale(&self, held: Held, change: &Change, partition: PartitionRow) -> bool {
        let is_claim = matches!(change, Change::Claim { .. });
        let begins = is_claim || matches!(change, Change::Begin { .. });
        partition.owner != Some(self.node)
            || partition.epoch != held.epoch
            || (is_claim && partition.lease_until <= self.now)
            || (begins && !self.ownership.may_claim(held))
    }
}

impl<'a> MemoryBatch<'a> {
    pub(super) fn new(
        transaction: &'a mut MemoryTransaction,
        topics: &'a [usize],
        now: i64,
        key_memory: Duration,
        sharing: Option<Sharing<'a>>,
    ) -> Self {
        let remembered = Remembered::at(now, key_memory);
        MemoryBatch { transaction, topics, now, remembered, has_ended_keys: false, sharing }
    }

    pub(super) fn transaction(&mut self) -> &mut MemoryTransaction {
        self.transaction
    }

    /// Forgets old keys.
    pub(super) fn finish(&mut self) {
        if !self.has_ended_keys {
            return;
        }
        let ends =
            self.transaction.tables().ends.iter().take_while(|(ended, ..)| *ended < self.remembered.first());
        let old: Vec<_> = ends.take(KEYS_REMOVED_AT_ONCE).cloned().collect();
        for (_, topic, key) in old {
            self.transaction.write(Write::EndedKey((topic, key), None));
        }
    }

    pub(super) fn apply(&mut self, change: &mut Change) -> Result<Outcome, StoreError> {
        if let Some(refused) = self.refusal(change) {
            return Ok(refused);
        }
        Ok(match change {
            Change::Start(timer) => self.start(timer),
            Change::Cancel(id) => self.cancel(*id),
            Change::Move { id, due } => self.move_to(*id, *due, true),
            Change::End { held, next, effect } => self.end(*held, *next, effect.as_mut()),
            Change::Begin { held, is_counted } => self.begin(*held, *is_counted),
            Change::Retry { held, due, error } => self.retry(*held, *due, error),
            Change::DeadLetter { held, next, error } => self.dead_letter(*held, *next, error),
            Change::SkipTo { held, next } => self.advance(held.key.id, *next),
            Change::Claim { .. } => Outcome::Done(None),
        })
    }

    /// Returns why a change of a run is not made: the stored timer is not that run, or the run
    /// belongs to another node.
    fn refusal(&mut self, change: &Change) -> Option<Outcome> {
        let held = change.held()?;
        let tables = self.transaction.tables();
        let timer = tables.timers.get(&held.key.id.get());
        let is_held = timer.is_some_and(|timer| timer.is_pending() && timer.due == held.key.due);
        let Some(sharing) = &mut self.sharing else { return (!is_held).then_some(Outcome::Missing) };
        if timer.is_none() {
            return Some(Outcome::Missing);
        }
        let partition = tables.partitions.get(held.partition as usize).copied().unwrap_or_default();
        let is_stale = sharing.is_stale(held, change, partition);
        if is_held && !is_stale {
            return None;
        }
        sharing.recheck.insert(held.key.id.get());
        Some(if is_stale { Outcome::Refused(StoreError::StaleEpoch) } else { Outcome::Missing })
    }

    fn start(&mut self, timer: &NewTimer) -> Outcome {
        let Some(&topic) = self.topics.get(timer.topic) else {
            return Outcome::Refused(StoreError::failed("a timer of a topic that is not attached"));
        };
        match self.transaction.known_key(topic, timer, &self.remembered) {
            None => {
                let mut new = Timer::new(topic, timer);
                let partitions = self.transaction.tables().partitions.len() as u32;
                let epoch = self.sharing.as_mut().map_or(0, |sharing| {
                    new.partition = sharing.ownership.place(partitions);
                    // No epoch is 0, so the engine leaves the timers of other nodes to them.
                    sharing.ownership.epoch(new.partition).unwrap_or(0)
                });
                let partition = new.partition;
                let id = self.transaction.add(new);
                Outcome::Started(TimerRow { partition, epoch, ..timer.stored_row(TimerId::new(id)) })
            }
            Some(Known::Ended(id)) => Outcome::AlreadyStarted { id: TimerId::new(id), changed: None },
            Some(Known::Stored(id)) => {
                let id = TimerId::new(id);
                Outcome::AlreadyStarted { id, changed: self.change_stored(id, timer) }
            }
        }
    }

    /// Changes a stored timer as a start with its key asks. Returns it if it has changed and is
    /// pending.
    fn change_stored(&mut self, id: TimerId, timer: &NewTimer) -> Option<TimerRow> {
        let stored = self.transaction.tables().timers.get(&id.get())?;
        let is_due = stored.is_pending() && stored.scheduled <= self.now;
        let is_rescheduled = timer.has_other_schedule(stored.schedule.as_deref());
        if !is_rescheduled && !timer.replaces_payload {
            return None;
        }
        self.transaction.change(id.get(), |stored| {
            stored.payload.clone_from(&timer.payload);
            if is_rescheduled {
                stored.schedule.clone_from(&timer.schedule);
            }
        });
        if is_rescheduled && !is_due {
            return self.move_to(id, timer.due, false).into_row();
        }
        self.row(id)
    }

    fn end(&mut self, held: Held, next: Option<i64>, effect: Option<&mut Effect>) -> Outcome {
        if let Some(effect) = effect {
            let savepoint = self.transaction.savepoint();
            if let Err(error) = StoreTransaction::new(self.transaction).run(effect) {
                self.transaction.roll_back_to(savepoint);
                return Outcome::Refused(error);
            }
        }
        match next {
            Some(next) => self.advance(held.key.id, next),
            None => self.cancel(held.key.id),
        }
    }

    fn begin(&mut self, held: Held, is_counted: bool) -> Outcome {
        self.transaction.change(held.key.id.get(), |timer| match (timer.begun, is_counted) {
            (Begun::Counted, _) => {}
            (_, true) => {
                timer.attempts = timer.attempts.saturating_add(1);
                timer.begun = Begun::Counted;
            }
            (_, false) => timer.begun = Begun::Noted,
        });
        Outcome::Done(None)
    }

    fn retry(&mut self, held: Held, due: i64, error: &str) -> Outcome {
        self.transaction.change(held.key.id.get(), |timer| {
            timer.count_attempt();
            timer.begun = if timer.begun == Begun::Counted { Begun::Noted } else { Begun::No };
            timer.due = due;
            timer.error = Some(error.to_owned());
        });
        Outcome::Done(self.row(held.key.id))
    }

    fn dead_letter(&mut self, held: Held, next: Option<i64>, error: &str) -> Outcome {
        let (id, now) = (held.key.id, self.now);
        let die = |timer: &mut Timer| {
            timer.count_attempt();
            timer.state = TimerState::Dead;
            timer.due = now;
            timer.begun = Begun::No;
            timer.error = Some(error.to_owned());
        };
        let Some(next) = next else {
            self.transaction.change(id.get(), die);
            return Outcome::Done(None);
        };
        if let Some(mut copy) = self.transaction.tables().timers.get(&id.get()).cloned() {
            die(&mut copy);
            (copy.key, copy.schedule, copy.is_moved) = (None, None, false);
            self.transaction.add(copy);
        }
        self.advance(id, next)
    }

    pub(super) fn cancel(&mut self, id: TimerId) -> Outcome {
        let Some(timer) = self.transaction.tables().timers.get(&id.get()) else { return Outcome::Missing };
        // A periodic timer that was cancelled may be started again.
        let key = timer.key.clone().filter(|_| timer.schedule.is_none());
        let key = key.map(|key| (timer.topic, key));
        self.transaction.write(Write::Timer(id.get(), None));
        if let Some(key) = key {
            self.transaction.write(Write::EndedKey(key, Some((id.get(), self.now))));
            self.has_ended_keys = true;
        }
        Outcome::Done(None)
    }

    /// `is_command`: the timer keeps its time, however far away it is.
    pub(super) fn move_to(&mut self, id: TimerId, due: i64, is_command: bool) -> Outcome {
        let is_stored = self.transaction.change(id.get(), |timer| {
            timer.wait_for(due);
            timer.is_moved = is_command;
        });
        if is_stored { Outcome::Done(self.row(id)) } else { Outcome::Missing }
    }

    /// Moves a periodic timer to its next run.
    fn advance(&mut self, id: TimerId, next: i64) -> Outcome {
        self.move_to(id, next, false)
    }

    /// Returns a pending timer of an attached topic as it is now.
    fn row(&self, id: TimerId) -> Option<TimerRow> {
        let timer = self.transaction.tables().timers.get(&id.get()).filter(|timer| timer.is_pending())?;
        let ownership = self.sharing.as_ref().map(|sharing| &*sharing.ownership);
        View { topics: self.topics, ownership }.row(id.get(), timer)
    }
}
