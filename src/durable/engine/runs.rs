//! From due to ended.

use super::{
    Engine, Now, State,
    message::{EngineStep, Purpose, RunAnswer},
    permit::Permit,
    run::{RunPhase, TimerRun},
    suspects::Suspicion,
};
use crate::durable::{
    id::TimerId,
    policy::{Delivery, Late},
    store::{Begun, Change, Effect, Outcome, StoreError, TimerRow},
};
/// How many missed runs are counted for [`Due::missed`](crate::durable::Due::missed).
const MISSED_LIMIT: u64 = 1_000;

/// The longest text of an error that is stored, in bytes.
const ERROR_LIMIT: usize = 1024;

/// What becomes of a timer that is due.
enum Plan {
    TimerRun {
        next: Option<i64>,
        /// The time after which `next` was searched for.
        after: i64,
        missed: u64,
    },
    SkipTo {
        next: i64,
    },
    /// Without a run.
    End,
    DeadLetter(String),
}

impl Engine {
    /// Begins runs that are due. Those that need no permission of the store are ready at once.
    pub(super) fn begin_due(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        for _ in 0..self.limits.fires_per_turn {
            if self.ready.len() >= self.limits.fires_per_turn || !self.has_room() || !self.may_fire(now) {
                break;
            }
            if self.waits_for_alone() {
                break;
            }
            let Some((row, permit)) = self.window.pop_due(now.wall) else { break };
            // The order of the window is not what decides: never early.
            assert!(row.key.due <= now.wall, "a timer must not fire early");
            self.begin(row, permit, now, steps);
        }
    }

    fn begin(&mut self, row: TimerRow, permit: Permit, now: Now, steps: &mut Vec<EngineStep>) {
        let row = self.suspects.begins(row);
        let id = row.key.id;
        let held = row.held();
        let plan = self.plan(&row, now);
        let suspicion = self.suspects.suspicion(&row);
        let mut run = TimerRun::new(row);
        let change = match plan {
            Plan::SkipTo { next } => {
                self.caught_up.insert(id);
                self.metrics.skipped.add(1);
                Change::SkipTo { held, next }
            }
            Plan::End => {
                self.metrics.skipped.add(1);
                Change::End { held, next: None, effect: None }
            }
            Plan::DeadLetter(error) => {
                self.metrics.dead_lettered.add(1);
                Change::DeadLetter { held, next: None, error }
            }
            Plan::TimerRun { next, after, missed } => {
                self.caught_up.remove(&id);
                run.next = next;
                run.after = after;
                run.missed = missed;
                run.phase = RunPhase::Permission;
                run.permit = Some(permit);
                match self.rules[run.row.topic].delivery {
                    Delivery::AtMostOnce => Change::End { held, next, effect: None },
                    Delivery::AtLeastOnce if run.row.begun == Begun::Counted => {
                        return self.interrupted(run, now, steps);
                    }
                    Delivery::AtLeastOnce if suspicion != Suspicion::None => {
                        self.note(&mut run, suspicion == Suspicion::Alone)
                    }
                    Delivery::AtLeastOnce if self.lease.is_some() => Change::Claim { held },
                    Delivery::AtLeastOnce => return self.get_ready(run),
                }
            }
        };
        let purpose = if run.phase == RunPhase::Permission { Purpose::Permission } else { Purpose::End };
        self.runs.insert(run);
        steps.push(EngineStep::Change { id, change, purpose });
    }

    /// Returns whether the first timer must begin alone, and waits for another one.
    pub(super) fn waits_for_alone(&self) -> bool {
        self.alone.is_some()
            && self.window.first_row().is_some_and(|row| self.suspects.suspicion(row) == Suspicion::Alone)
    }

    /// Notes the attempt of a suspect before it begins. Its answer finds it counted.
    fn note(&mut self, run: &mut TimerRun, is_counted: bool) -> Change {
        if is_counted {
            run.row.attempts = run.row.attempts.saturating_add(1);
            run.row.begun = Begun::Counted;
            self.alone = Some(run.row.key.id);
            self.suspects.begins_alone();
        }
        Change::Begin { held: run.row.held(), is_counted }
    }

    /// A counted attempt of a program that has ended. It has failed.
    fn interrupted(&mut self, run: TimerRun, now: Now, steps: &mut Vec<EngineStep>) {
        let (id, attempt) = (run.row.key.id, run.attempt());
        log::warn!("the program has ended during attempt {attempt} of timer {id}");
        self.metrics.interrupted.add(1);
        self.fail(run, "the program ended during the run".to_owned(), now, steps);
    }

    fn plan(&mut self, row: &TimerRow, now: Now) -> Plan {
        let schedule = match row.schedule.as_deref().map(|text| self.schedules.get(text)).transpose() {
            Ok(schedule) => schedule,
            Err(error) => return Plan::DeadLetter(error.to_string()),
        };
        let run = row.scheduled;
        let next = |after: i64| schedule.as_ref().and_then(|schedule| schedule.next_after(run, after));
        let late = self.rules[row.topic].late;
        let is_late = |due: i64| now.wall.saturating_sub(due) > self.limits.late_after;
        // A retry is on time, but may have kept later runs waiting.
        let replaces_next =
            matches!(late, Late::RunOnce | Late::HandlerDecides) && next(run).is_some_and(is_late);
        if !is_late(row.key.due) && !replaces_next {
            return Plan::TimerRun { next: next(run), after: run, missed: 0 };
        }
        match late {
            Late::Skip => next(now.wall).map_or(Plan::End, |next| Plan::SkipTo { next }),
            Late::RunOnce | Late::HandlerDecides => {
                let missed = schedule.as_ref().map_or(0, |s| s.missed(run, now.wall, MISSED_LIMIT));
                Plan::TimerRun { next: next(now.wall), after: now.wall, missed }
            }
            Late::RunAll { at_most } => {
                if let Some(schedule) = schedule.as_ref().filter(|_| !self.caught_up.contains(&row.key.id)) {
                    let first = schedule.last_runs(run, now.wall, at_most);
                    if first > run {
                        return Plan::SkipTo { next: first };
                    }
                }
                Plan::TimerRun { next: next(run), after: run, missed: 0 }
            }
        }
    }

    pub(super) fn changed(&mut self, id: TimerId, outcome: Outcome, now: Now, steps: &mut Vec<EngineStep>) {
        let Some(outcome) = self.command_done(id, outcome, now, steps) else { return };
        let Some(run) = self.runs.remove(id) else { return };
        if !matches!((run.phase, &outcome), (RunPhase::Permission, Outcome::Done(_))) {
            self.begun_alone(id);
        }
        match (run.phase, outcome) {
            (RunPhase::Permission, Outcome::Done(row)) => self.permitted(run, row),
            (RunPhase::End, Outcome::Refused(StoreError::Effect(error))) => {
                return self.fail(run, error.to_string(), now, steps);
            }
            (_, Outcome::Missing | Outcome::Refused(_)) => {
                self.metrics.stale.add(1);
                // A refused skip has skipped nothing.
                self.caught_up.remove(&id);
                run.replaced.into_iter().for_each(|row| self.insert(*row));
            }
            (_, outcome) => {
                self.metrics.ended.add(1);
                outcome.into_row().into_iter().for_each(|row| self.go_on(&run, row, steps));
            }
        }
        if !self.runs.contains(id) {
            self.next_command(id, now, steps);
        }
    }

    /// Takes the timer as it is after a run.
    ///
    /// If it got another schedule during the run, its next run is still that of the old one.
    pub(super) fn go_on(&mut self, run: &TimerRun, row: TimerRow, steps: &mut Vec<EngineStep>) {
        let is_next = run.next == Some(row.scheduled);
        let text =
            row.schedule.as_deref().filter(|text| is_next && run.row.schedule.as_deref() != Some(text));
        let Some(Ok(schedule)) = text.map(|text| self.schedules.get(text)) else {
            return self.insert(row);
        };
        let (id, held) = (row.key.id, row.held());
        let change = match schedule.next_after(run.row.scheduled, run.after) {
            Some(next) => Change::SkipTo { held, next },
            None => Change::End { held, next: None, effect: None },
        };
        self.runs.insert(TimerRun::new(row));
        steps.push(EngineStep::Change { id, change, purpose: Purpose::End });
    }

    pub(super) fn answered(
        &mut self,
        id: TimerId,
        number: u64,
        answer: RunAnswer,
        now: Now,
        steps: &mut Vec<EngineStep>,
    ) {
        let is_open = |run: &TimerRun| run.phase == RunPhase::TopicHandler && run.number == number;
        let Some(run) = self.runs.get(id).is_some_and(is_open).then(|| self.runs.remove(id)).flatten() else {
            // After a stop, all runs are forgotten, and their answers are not late.
            if !matches!(self.state, State::Stopped(_)) {
                self.metrics.late_answers.add(1);
            }
            return answer.discard(steps);
        };
        if self.has_ended(&run) {
            return self.answered_after_end(run, answer, now, steps);
        }
        match answer {
            RunAnswer::Done(effect) => self.end(run, effect, steps),
            RunAnswer::Skip => {
                self.metrics.skipped.add(1);
                self.end(run, None, steps);
            }
            RunAnswer::Failed(error) => self.fail(run, error, now, steps),
        }
    }

    fn end(&mut self, mut run: TimerRun, effect: Option<Effect>, steps: &mut Vec<EngineStep>) {
        let id = run.row.key.id;
        let change = Change::End { held: run.row.held(), next: run.next, effect };
        run.phase = RunPhase::End;
        run.permit = None;
        run.deadline = None;
        self.runs.insert(run);
        steps.push(EngineStep::Change { id, change, purpose: Purpose::End });
    }

    /// Tries the run again later, or makes it a dead letter.
    pub(super) fn fail(&mut self, mut run: TimerRun, error: String, now: Now, steps: &mut Vec<EngineStep>) {
        let id = run.row.key.id;
        let held = run.row.held();
        let error = shortened(error);
        let attempt = run.attempt();
        let change = match self.rules[run.row.topic].retry.pause_after(attempt) {
            Some(pause) => {
                self.metrics.retried.add(1);
                let due = Self::due_after(now, pause);
                // A change that is repeated after a lost answer must not find the next run.
                let due = if run.next == Some(due) { due.saturating_add(1) } else { due };
                Change::Retry { held, due, error }
            }
            None => {
                self.metrics.dead_lettered.add(1);
                Change::DeadLetter { held, next: run.next, error }
            }
        };
        run.phase = RunPhase::End;
        run.permit = None;
        run.deadline = None;
        self.runs.insert(run);
        steps.push(EngineStep::Change { id, change, purpose: Purpose::End });
    }
}

fn shortened(mut error: String) -> String {
    if error.len() > ERROR_LIMIT {
        let end = (0..=ERROR_LIMIT).rev().find(|end| error.is_char_boundary(*end)).unwrap_or(0);
        error.truncate(end);
    }
    error
}
