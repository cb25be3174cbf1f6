//! Finding a small set of faults and operations with which a seed still fails.
//!
//! Whole kinds are left out first, then the end of the faults moves forward, then halves and
//! smaller parts are left out (delta debugging, Zeller 1999). A smaller run counts only if it fails
//! with the same message, numbers aside. Otherwise the report would be about another failure.

use super::{
    failure::Failure,
    replay::Replay,
    run::{Played, SeedRun},
};
use crate::machine::simulated::{Fault, Mask, Operation};
use std::collections::BTreeSet;

/// The most runs for finding a smaller set.
const MOST_RUNS: u32 = 200;

/// A fault or an operation that may be left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Fault(Fault, u64),
    Operation(Operation),
}

impl Item {
    /// Returns whether the two are of one kind: one fault, or operations of one name.
    fn is_like(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Fault(a, _), Item::Fault(b, _)) => a == b,
            (Item::Operation(a), Item::Operation(b)) => a.name == b.name,
            _ => false,
        }
    }
}

/// Repeats a run.
type Play<'a> = dyn FnMut(&Replay) -> Played + 'a;

/// Chooses the items that may be left out in this pass.
type IsInTurn = fn(&Item) -> bool;

struct Shrinking<'a> {
    seed: u64,
    failure: Failure,
    /// The faults and operations of the smallest failing run, in the order of time.
    kept: Vec<Item>,
    /// Whether the programs have optional operations, and all of them are known.
    has_operations: bool,
    runs_left: u32,
    play: &'a mut Play<'a>,
}

/// Returns the failure of the smallest failing run that was found. `run` is the first failing run.
pub(super) fn shrink<'a>(failure: Failure, run: &SeedRun, play: &'a mut Play<'a>) -> Failure {
    if failure.replay.is_none() {
        return failure;
    }
    let kept = items(&failure, run);
    let has_operations = run.operations.as_ref().is_some_and(|operations| !operations.is_empty());
    let (seed, runs_left) = (failure.seed, MOST_RUNS);
    let mut shrinking = Shrinking { seed, failure, kept, has_operations, runs_left, play };
    let (is_fault, is_operation): (IsInTurn, IsInTurn) =
        (|item| matches!(item, Item::Fault(..)), |item| matches!(item, Item::Operation(_)));
    for is_in_turn in [is_fault, is_operation] {
        shrinking.leave_all_out(is_in_turn);
        shrinking.leave_kinds_out(is_in_turn);
        shrinking.end_earlier(is_in_turn);
        shrinking.leave_parts_out(is_in_turn);
    }
    shrinking.failure
}

/// Returns the faults and operations of a run.
fn items(failure: &Failure, run: &SeedRun) -> Vec<Item> {
    let faults = failure.happened.iter().map(|record| Item::Fault(record.fault, record.opportunity));
    let operations = run.operations.iter().flatten().cloned().map(Item::Operation);
    faults.chain(operations).collect()
}

impl Shrinking<'_> {
    /// Runs the seed with these items only. Keeps the result if the run still fails.
    fn still_fails(&mut self, tried: &[Item]) -> bool {
        if self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        let mut mask = Mask { faults: BTreeSet::new(), operations: self.has_operations.then(BTreeSet::new) };
        for item in tried {
            match item {
                Item::Fault(fault, opportunity) => drop(mask.faults.insert((*fault, *opportunity))),
                Item::Operation(operation) => {
                    mask.operations.get_or_insert_default().insert(operation.clone());
                }
            }
        }
        let (result, run) = (self.play)(&Replay { seed: self.seed, mask });
        let Err(failure) = result else { return false };
        if failure.replay.is_none() || without_numbers(&failure) != without_numbers(&self.failure) {
            return false;
        }
        self.kept = items(&failure, &run);
        self.failure = failure;
        true
    }

    fn still_fails_without(&mut self, is_left_out: impl Fn(&Item) -> bool) -> bool {
        let rest: Vec<Item> = self.kept.iter().filter(|item| !is_left_out(item)).cloned().collect();
        rest.len() < self.kept.len() && self.still_fails(&rest)
    }

    fn leave_all_out(&mut self, is_in_turn: IsInTurn) {
        self.still_fails_without(is_in_turn);
    }

    fn leave_kinds_out(&mut self, is_in_turn: IsInTurn) {
        let mut tried: Vec<Item> = Vec::new();
        while let Some(next) =
            self.kept.iter().find(|item| is_in_turn(item) && !tried.iter().any(|t| t.is_like(item)))
        {
            let next = next.clone();
            self.still_fails_without(|item| item.is_like(&next));
            tried.push(next);
        }
    }

    /// Leaves out the last items, as many as possible.
    fn end_earlier(&mut self, is_in_turn: IsInTurn) {
        let (mut enough, mut too_few) = (self.in_turn(is_in_turn).len(), 0);
        while enough > too_few + 1 {
            let in_turn = self.in_turn(is_in_turn);
            let end = too_few.midpoint(enough);
            let late: BTreeSet<Item> = in_turn.into_iter().skip(end).collect();
            if late.is_empty() {
                return;
            }
            if self.still_fails_without(|item| late.contains(item)) { enough = end } else { too_few = end }
        }
    }

    fn leave_parts_out(&mut self, is_in_turn: IsInTurn) {
        let mut parts = 2;
        loop {
            let in_turn = self.in_turn(is_in_turn);
            if in_turn.len() < 2 || self.runs_left == 0 {
                return;
            }
            let size = in_turn.len().div_ceil(parts);
            let has_shrunk = in_turn.chunks(size).any(|part| {
                let part: BTreeSet<&Item> = part.iter().collect();
                self.still_fails_without(|item| part.contains(item))
            });
            parts = match has_shrunk {
                true => 2.max(parts - 1),
                // The last step looks at each item alone.
                false if parts < in_turn.len() => in_turn.len().min(parts * 2),
                false => return,
            };
        }
    }

    fn in_turn(&self, is_in_turn: IsInTurn) -> Vec<Item> {
        self.kept.iter().filter(|item| is_in_turn(item)).cloned().collect()
    }
}

/// Returns the message of a failure without its numbers.
fn without_numbers(failure: &Failure) -> String {
    failure.message.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
