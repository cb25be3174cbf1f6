//! What must hold of durable timers, whatever fails: the rules of the kill tests.

use netwheel::durable::{TimerInfo, TimerState};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

/// The topics of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Done at once.
    Plain,
    /// Runs at most once.
    Once,
    /// Done with a row.
    Effect,
    /// Fails at the first attempt.
    Retry,
    /// Fails always, and becomes a dead letter.
    Dead,
    /// Answered after a while.
    Later,
    Periodic,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] =
        [Kind::Plain, Kind::Once, Kind::Effect, Kind::Retry, Kind::Dead, Kind::Later, Kind::Periodic];

    pub(super) fn topic(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Once => "once",
            Kind::Effect => "effect",
            Kind::Retry => "retry",
            Kind::Dead => "dead",
            Kind::Later => "later",
            Kind::Periodic => "periodic",
        }
    }
}

/// The number of a timer, and the id that the store has given it.
pub(super) type Number = u64;
pub(super) type Id = i64;

/// A run of a handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// The number of the opening of a store, over all nodes.
    pub(super) life: u64,
    pub(super) id: Id,
    pub(super) scheduled: SystemTime,
    /// The time by the clock that decides.
    pub(super) now: SystemTime,
    pub(super) attempt: u32,
}

/// What programs record.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A start was submitted.
    Asked(Kind, Number),
    /// A start was completed.
    Started(Kind, Number, Id),
    CancelAsked(Id),
    /// A command that changes the time was submitted.
    Moved(Id),
    /// A cancel was completed with `true`.
    Cancelled(Id),
    /// A cancel after the answer has found nothing.
    Ended(Id),
    Ran(Kind, Number, Run),
}

#[derive(Debug, Default)]
struct Timer {
    is_started: bool,
    ids: BTreeSet<Id>,
    runs: Vec<Run>,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// The number of events that were looked at.
    seen: usize,
    /// How often something was seen that is allowed, and rare.
    pub(super) counts: BTreeMap<&'static str, u64>,
    timers: BTreeMap<(Kind, Number), Timer>,
    cancel_asked: BTreeSet<Id>,
    cancelled: BTreeSet<Id>,
    moved: BTreeSet<Id>,
    ended: BTreeSet<Id>,
    /// Whether several nodes share the store. Then a run may be repeated without a new life.
    has_nodes: bool,
    /// Whether a node may take its clock for that of the store although it has jumped.
    may_be_early: bool,
}

impl Oracle {
    /// Returns the oracle of several nodes.
    pub(super) fn of_nodes(may_be_early: bool) -> Self {
        Oracle { has_nodes: true, may_be_early, ..Oracle::default() }
    }

    /// Looks at the events that are new.
    pub(super) fn look(&mut self, events: &[Event]) -> Result<(), String> {
        let new = events.get(self.seen..).unwrap_or_default();
        self.seen = events.len();
        new.iter().try_for_each(|event| self.take(event))
    }

    fn take(&mut self, event: &Event) -> Result<(), String> {
        match *event {
            Event::Asked(kind, number) => drop(self.timers.entry((kind, number)).or_default()),
            Event::Started(kind, number, id) => {
                let timer = self.timers.entry((kind, number)).or_default();
                timer.is_started = true;
                timer.ids.insert(id);
                if kind != Kind::Periodic && timer.ids.len() > 1 {
                    return Err(format!("a key has one timer: {kind:?} {number} {timer:?}"));
                }
            }
            Event::CancelAsked(id) => drop(self.cancel_asked.insert(id)),
            Event::Moved(id) => drop(self.moved.insert(id)),
            Event::Cancelled(id) => drop(self.cancelled.insert(id)),
            Event::Ended(id) => drop(self.ended.insert(id)),
            Event::Ran(kind, number, run) => self.ran(kind, number, run)?,
        }
        Ok(())
    }

    fn ran(&mut self, kind: Kind, number: Number, run: Run) -> Result<(), String> {
        let told = format!("{kind:?} {number} {run:?}");
        // The store has ended an at-most-once run before, and the clock may be set back meanwhile.
        if run.now < run.scheduled && kind != Kind::Once && !self.may_be_early {
            return Err(format!("early: {told}"));
        }
        if self.cancelled.contains(&run.id) {
            return Err(format!("ran after it was cancelled: {told}"));
        }
        if self.ended.contains(&run.id) {
            return Err(format!("ran after its end was stored: {told}"));
        }
        let has_nodes = self.has_nodes;
        let timer = self.timers.entry((kind, number)).or_default();
        let last = timer.runs.last().copied();
        timer.runs.push(run);
        timer.ids.insert(run.id);
        let Some(last) = last else { return Ok(()) };
        let is_interrupted = run.life > last.life || (has_nodes && run.life != last.life);
        if kind == Kind::Periodic {
            let is_repeated = run.scheduled == last.scheduled && (is_interrupted || has_nodes);
            if run.scheduled > last.scheduled || is_repeated {
                return Ok(());
            }
            return Err(format!("a run of the past: {told} after {last:?}"));
        }
        if timer.ids.len() > 1 {
            return Err(format!("a key has one timer: {told} {timer:?}"));
        }
        if kind == Kind::Once {
            return Err(format!("an at-most-once timer ran twice: {told} after {last:?}"));
        }
        // A command gives the run another time, and all its attempts.
        let is_moved = self.moved.contains(&run.id) && run.scheduled != last.scheduled;
        let is_retry = kind == Kind::Retry && (run.attempt > last.attempt || is_moved);
        if is_interrupted {
            *self.counts.entry("a run was repeated").or_default() += 1;
        }
        if is_interrupted || is_retry || has_nodes {
            return Ok(());
        }
        Err(format!("ran twice without an interruption: {told} after {last:?}"))
    }

    /// Checks that nothing is missing, after nothing was left to do.
    pub(super) fn check_end(
        &mut self,
        left: &[TimerInfo],
        rows: &BTreeMap<String, Vec<u8>>,
        now: SystemTime,
    ) -> Result<(), String> {
        let dead = |info: &&TimerInfo| info.state == TimerState::Dead;
        let dead: BTreeMap<Id, &TimerInfo> =
            left.iter().filter(dead).map(|info| (info.id.get(), info)).collect();
        let given_up = |timer: &Timer| {
            let ended = |id: &Id| {
                dead.get(id)
                    .is_some_and(|info| info.error.as_deref() == Some("the program ended during the run"))
            };
            timer.ids.iter().any(ended)
        };
        for ((kind, number), timer) in &self.timers {
            let told = format!("{kind:?} {number} {timer:?}");
            let is_cancel_asked = timer.ids.iter().any(|id| self.cancel_asked.contains(id));
            let has_run = !timer.runs.is_empty();
            if given_up(timer) {
                *self.counts.entry("a timer was given up").or_default() += 1;
                continue;
            }
            if *kind == Kind::Periodic {
                check_periodic(timer, left, now)?;
                continue;
            }
            if timer.is_started && !is_cancel_asked && *kind != Kind::Once && !has_run {
                return Err(format!("lost: {told}"));
            }
            if *kind == Kind::Effect {
                let stored = rows.get(&format!("effect {number}")).map_or(0, |row| row[0]);
                let is_gone = stored == 0 && is_cancel_asked;
                if stored != u8::from(has_run) && !is_gone {
                    return Err(format!("{stored} effects: {told}"));
                }
            }
            if *kind == Kind::Dead && has_run && !is_cancel_asked {
                let is_dead = timer.ids.iter().any(|id| dead.contains_key(id));
                if !is_dead {
                    return Err(format!("no dead letter: {told}"));
                }
            }
        }
        Ok(())
    }
}

/// The periodic timer waits for its next run. A clock that was wrong costs a day at most.
fn check_periodic(timer: &Timer, left: &[TimerInfo], now: SystemTime) -> Result<(), String> {
    let is_it = |info: &&TimerInfo| info.topic == "periodic" && info.state == TimerState::Pending;
    let Some(info) = left.iter().find(is_it) else {
        return if timer.is_started { Err("the periodic timer is lost".to_owned()) } else { Ok(()) };
    };
    if info.due > now + Duration::from_secs(24 * 3600 + 60) {
        return Err(format!("the periodic timer is far away: {info:?} at {now:?}"));
    }
    Ok(())
}
