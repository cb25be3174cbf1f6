//! `Suspects`: timers of which one may have ended a program.
//!
//! A handler that kills the program would be called first after each restart, and nothing else
//! would ever fire. So after a program has ended without closing its store, the attempts of the
//! timers whose time had come are noted before they begin. The first ones, and timers that were
//! interrupted before, begin one after the other: if one of them ends the program again, it is
//! known.

use crate::durable::{
    id::TimerId,
    store::{Begun, TimerRow},
};
use std::collections::{BTreeMap, BTreeSet};

/// How many of the timers that were due first begin alone after a program has ended. The one that
/// has ended it is probably among them. The others are noted in groups, so that a large backlog
/// fires quickly.
const ALONE: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// The time of the first poll, if the whole store is suspect.
    due_until: Option<i64>,
    is_store_suspect: bool,
    /// The time of the first poll for each suspect partition and epoch.
    partitions: BTreeMap<(u32, i64), i64>,
    alone: u32,
    /// Timers whose attempt the store has counted, and whose handlers were not called. They may be
    /// loaded again. Suspects begin alone, so there are few.
    not_begun: BTreeSet<TimerId>,
}

/// How the attempt of a suspect begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// It is not suspect, and begins as usual.
    None,
    /// It is noted.
    Grouped,
    /// It is counted, and begins when no other one does.
    Alone,
}

impl Suspects {
    /// Suspects all timers of the store that are due at the first poll.
    pub(super) fn suspect_store(&mut self) {
        self.is_store_suspect = true;
    }

    pub(super) fn polled(&mut self, now: i64) {
        if self.is_store_suspect && self.due_until.is_none() {
            self.due_until = Some(now);
            self.alone = ALONE;
        }
    }

    /// Takes the partitions with suspects, as of a renewal.
    pub(super) fn set_partitions(&mut self, suspects: &[(u32, i64)], now: i64) {
        self.partitions.retain(|partition, _| suspects.binary_search(partition).is_ok());
        for partition in suspects {
            if !self.partitions.contains_key(partition) {
                self.partitions.insert(*partition, now);
                self.alone = ALONE;
            }
        }
    }

    pub(super) fn suspicion(&self, row: &TimerRow) -> Suspicion {
        let of_partition = self.partitions.get(&(row.partition, row.epoch)).copied();
        let is_suspect = self.due_until.max(of_partition).is_some_and(|until| row.key.due <= until);
        match row.begun {
            Begun::Noted => Suspicion::Alone,
            Begun::Counted | Begun::No if is_suspect && self.alone > 0 => Suspicion::Alone,
            Begun::Counted | Begun::No if is_suspect => Suspicion::Grouped,
            Begun::Counted | Begun::No => Suspicion::None,
        }
    }

    /// A suspect begins alone.
    pub(super) fn begins_alone(&mut self) {
        self.alone = self.alone.saturating_sub(1);
    }

    /// Returns a timer that waits again, though its attempt may have been counted.
    pub(super) fn not_begun(&mut self, row: TimerRow) -> TimerRow {
        if row.begun == Begun::Counted {
            self.not_begun.insert(row.key.id);
        }
        uncounted(row)
    }

    /// Returns a timer that begins. If its attempt was counted by this program and has not begun,
    /// it was not interrupted.
    pub(super) fn begins(&mut self, row: TimerRow) -> TimerRow {
        if self.not_begun.remove(&row.key.id) { uncounted(row) } else { row }
    }
}

/// Takes the count of an attempt back. The store does not count that attempt again.
fn uncounted(mut row: TimerRow) -> TimerRow {
    if row.begun == Begun::Counted {
        row.begun = Begun::Noted;
        row.attempts = row.attempts.saturating_sub(1);
    }
    row
}
