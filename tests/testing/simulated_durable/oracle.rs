//! What must hold of durable timers, whatever fails: the rules of the kill tests. `ledger` has
//! those about claims and leases.

use super::ledger::{Ledger, Traffic};
use netwheel::durable::{TimerInfo, TimerState};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

/// How often a run is tried again, in the topics that do so.
pub(super) const RETRIES: u32 = 20;

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

/// What programs and their stores record.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A node has opened a store.
    Opened {
        node: usize,
        life: u64,
    },
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
    /// What passed between the engine of a node and its store.
    Stored(Traffic),
}

#[derive(Debug, Default)]
struct Timer {
    is_started: bool,
    ids: BTreeSet<Id>,
    /// With the epochs of their claims, 0 in a store of one node.
    runs: Vec<(Run, i64)>,
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
    /// Timers that were cancelled after another node had asked for a claim. That run may be called.
    claimed_before: BTreeSet<Id>,
    /// How often each timer was moved by a command.
    moves: BTreeMap<Id, u32>,
    ended: BTreeSet<Id>,
    /// The latest life of each node.
    lives: BTreeMap<usize, u64>,
    ledger: Ledger,
    /// Whether several nodes share the store. Then a run may be repeated without a new life.
    has_nodes: bool,
    /// Whether a node may take its clock for that of the store although it has jumped.
    may_be_early: bool,
}

/// Returns the events of a timer up to a run of it that is wrong, one per line.
fn history(events: &[Event], wrong: &Event) -> String {
    let Event::Ran(_, _, run) = wrong else { return String::new() };
    let is_of_timer = |event: &&Event| match event {
        Event::Started(_, _, id)
        | Event::CancelAsked(id)
        | Event::Moved(id)
        | Event::Cancelled(id)
        | Event::Ended(id) => *id == run.id,
        Event::Ran(_, _, other) => other.id == run.id,
        Event::Stored(Traffic::Asked { claim, .. } | Traffic::Made { claim, .. }) => claim.id == run.id,
        Event::Opened { .. } | Event::Asked(..) | Event::Stored(Traffic::Leased { .. }) => false,
    };
    events.iter().filter(is_of_timer).map(|event| format!("\n  {event:?}")).collect()
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
        let take = |event| self.take(event).map_err(|why| format!("{why}{}", history(events, event)));
        new.iter().try_for_each(take)
    }

    fn take(&mut self, event: &Event) -> Result<(), String> {
        match *event {
            Event::Opened { node, life } => drop(self.lives.insert(node, life)),
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
            Event::Moved(id) => *self.moves.entry(id).or_default() += 1,
            Event::Cancelled(id) if self.has_nodes && self.ledger.may_be_claimed(id) => {
                self.claimed_before.insert(id);
            }
            Event::Cancelled(id) => drop(self.cancelled.insert(id)),
            Event::Ended(id) => drop(self.ended.insert(id)),
            Event::Ran(kind, number, run) => self.ran(kind, number, run)?,
            Event::Stored(ref traffic) => self.ledger.take(traffic)?,
        }
        Ok(())
    }

    /// Returns the epoch under which a run fires.
    ///
    /// A run that runs at most once fires even if its node has lost the lease since then, because
    /// its end is stored.
    fn epoch(&mut self, kind: Kind, run: &Run) -> Result<i64, String> {
        if kind == Kind::Once {
            return if self.ledger.has_ended(run) {
                Ok(0)
            } else {
                Err("its end was not stored before".into())
            };
        }
        if !self.has_nodes {
            return Ok(0);
        }
        let claim = self.ledger.use_claim(run).ok_or("its node has not claimed it")?;
        // A clock that has jumped says nothing about the lease.
        if !self.may_be_early && self.ledger.is_stale(&claim) {
            return Err(format!("another node has taken over: {claim:?}"));
        }
        Ok(claim.epoch)
    }

    fn ran(&mut self, kind: Kind, number: Number, run: Run) -> Result<(), String> {
        let told = format!("{kind:?} {number} {run:?}");
        // The store has ended an at-most-once run before, and the clock may have been set back
        // since then.
        if run.now < run.scheduled && kind != Kind::Once && !self.may_be_early {
            return Err(format!("early: {told}"));
        }
        if self.claimed_before.remove(&run.id) {
            *self.counts.entry("a run was cancelled after its claim").or_default() += 1;
            self.cancelled.insert(run.id);
        } else if self.cancelled.contains(&run.id) {
            return Err(format!("ran after it was cancelled: {told}"));
        }
        if self.ended.contains(&run.id) {
            return Err(format!("ran after its end was stored: {told}"));
        }
        let epoch = self.epoch(kind, &run).map_err(|why| format!("{why}: {told}"))?;
        let has_nodes = self.has_nodes;
        let timer = self.timers.entry((kind, number)).or_default();
        let last = timer.runs.last().copied();
        timer.runs.push((run, epoch));
        timer.ids.insert(run.id);
        let Some((last, last_epoch)) = last else { return Ok(()) };
        // Another node repeats a run only after it has taken over its partition.
        let is_interrupted = if has_nodes { epoch > last_epoch } else { run.life > last.life };
        if kind == Kind::Periodic {
            let is_repeated = run.scheduled == last.scheduled && is_interrupted;
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
        // A command gives the run another time, and all its attempts. That of another node does not
        // wait for the end of a run.
        let moves = self.moves.get(&run.id).copied().unwrap_or(0);
        // Two nodes may move a timer within the same millisecond, each time for one more run.
        let is_same = |(one, of): &&(Run, i64)| one.scheduled == run.scheduled && *of == epoch;
        let same = timer.runs.iter().filter(is_same).count() as u32;
        let is_moved = moves > 0 && (run.scheduled != last.scheduled || has_nodes && same <= moves);
        let is_retry = kind == Kind::Retry && (run.attempt > last.attempt || is_moved);
        if is_interrupted {
            *self.counts.entry("a run was repeated").or_default() += 1;
        }
        if is_interrupted || is_retry || (has_nodes && is_moved) {
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
        let alive: BTreeSet<u64> = self.lives.values().copied().collect();
        for ((kind, number), timer) in &self.timers {
            let told = format!("{kind:?} {number} {timer:?}");
            if *kind == Kind::Periodic {
                check_periodic(timer, left, now)?;
                continue;
            }
            let is_cancel_asked = timer.ids.iter().any(|id| self.cancel_asked.contains(id));
            let has_run = !timer.runs.is_empty();
            let stored = rows.get(&format!("effect {number}")).map_or(0, |row| row[0]);
            if let Some(letter) = timer.ids.iter().find_map(|id| given_up(dead.get(id)?)) {
                let allowed = if *kind == Kind::Dead { 1 } else { 1 + RETRIES };
                if *kind == Kind::Once || letter.attempts != allowed {
                    return Err(format!("given up after {} attempts: {told}", letter.attempts));
                }
                if *kind == Kind::Effect && stored != 0 {
                    return Err(format!("{stored} effects of a timer that was given up: {told}"));
                }
                *self.counts.entry("a timer was given up").or_default() += 1;
                continue;
            }
            if timer.is_started && !is_cancel_asked && !has_run {
                let is_lost = match kind {
                    Kind::Once => timer.ids.iter().all(|id| self.ledger.must_run(*id, &alive)),
                    _ => true,
                };
                if is_lost {
                    return Err(format!("lost: {told}"));
                }
                *self.counts.entry("an at-most-once run was left out").or_default() += 1;
            }
            if *kind == Kind::Effect {
                let is_gone = stored == 0 && is_cancel_asked;
                if stored != u8::from(has_run) && !is_gone {
                    return Err(format!("{stored} effects: {told}"));
                }
            }
            // The first attempt always fails.
            let is_retried = timer.runs.iter().any(|(run, _)| run.attempt > 1);
            if *kind == Kind::Retry && has_run && !is_cancel_asked && !is_retried {
                return Err(format!("not retried: {told}"));
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

/// Returns the dead letter if kills have interrupted all attempts.
fn given_up<'a>(letter: &&'a TimerInfo) -> Option<&'a TimerInfo> {
    (letter.error.as_deref() == Some("the program ended during the run")).then_some(*letter)
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
    if info.due + Duration::from_secs(60) < now {
        return Err(format!("the periodic timer does not run: {info:?} at {now:?}"));
    }
    Ok(())
}
