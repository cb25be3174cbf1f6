//! From ready to the handler.

use super::{
    Engine, Now,
    lease_watch::LeaseWatch,
    message::{EngineStep, RunAnswer},
    run::{Firing, RunPhase, TimerRun},
};
use crate::{
    clock::nanos,
    durable::{id::TimerId, policy::Delivery, store::TimerRow},
};
use std::time::Duration;

impl Engine {
    /// Puts a run into the queue for its handler.
    pub(super) fn get_ready(&mut self, mut run: TimerRun) {
        run.phase = RunPhase::Ready;
        self.ready.push_back(run.row.key.id);
        self.runs.insert(run);
    }

    /// The store has confirmed that the handler may be called. `row` is the timer after the end of
    /// an at-most-once run.
    pub(super) fn permitted(&mut self, mut run: TimerRun, row: Option<TimerRow>) {
        if self.has_ended(&run) {
            self.metrics.ended.add(1);
            run.replaced = row.map(Box::new);
        }
        self.get_ready(run);
    }

    /// Fires ready runs, as many as a turn may.
    pub(super) fn fire_ready(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        for _ in 0..self.limits.fires_per_turn {
            let Some(id) = self.ready.pop_front() else { break };
            self.fire(id, now, steps);
        }
    }

    /// Fires the runs that the store has ended already, before the engine forgets them.
    pub(super) fn fire_ended(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        for id in std::mem::take(&mut self.ready) {
            if let Some(mut run) = self.runs.remove(id).filter(|run| self.has_ended(run)) {
                steps.push(EngineStep::Fire(self.firing(&mut run, now)));
            }
        }
    }

    /// Fires a ready run. Permission may have been given a while ago: if the lease has ended, the
    /// clock was set back or the payload has become too long since then, the timer waits in the
    /// window again. If its topic was paused, the timer waits in the store.
    fn fire(&mut self, id: TimerId, now: Now, steps: &mut Vec<EngineStep>) {
        let Some(mut run) = self.runs.remove(id) else { return };
        self.begun_alone(id);
        let is_own = self.lease.as_ref().is_none_or(|lease| lease.owns_claim(&run.row));
        let is_paused = self.window.is_paused(run.row.topic);
        let has_room = !run.has_grown || self.has_room_for(run.weight());
        let is_due = run.row.key.due <= now.wall;
        let may_fire = is_due && self.may_fire(now) && is_own && !is_paused && has_room;
        if may_fire || self.has_ended(&run) {
            run.phase = RunPhase::TopicHandler;
            steps.push(EngineStep::Fire(self.firing(&mut run, now)));
            self.runs.insert(run);
        } else {
            self.wait_again(run, now, steps);
        }
    }

    /// Takes a run back whose handler was not called, because the lease has ended since the poll.
    pub(in crate::durable) fn not_called(&mut self, firing: Firing, now: Now, steps: &mut Vec<EngineStep>) {
        let now = self.look(now);
        if let Some(mut run) = self.runs.remove(firing.row.key.id) {
            run.row = TimerRow { schedule: run.row.schedule, ..firing.row };
            self.wait_again(run, now, steps);
        }
    }

    /// Ends a run whose handler was not called. Its timer waits again.
    fn wait_again(&mut self, run: TimerRun, now: Now, steps: &mut Vec<EngineStep>) {
        let id = run.row.key.id;
        let row = run.replaced.map_or_else(|| self.suspects.not_begun(run.row), |row| *row);
        self.insert(row);
        self.next_command(id, now, steps);
    }

    /// Another suspect may begin, after the handler of this one was called, or if that will not be.
    pub(super) fn begun_alone(&mut self, id: TimerId) {
        if self.alone == Some(id) {
            self.alone = None;
        }
    }

    /// The handler of an at-most-once run has answered. The timer goes on.
    pub(super) fn answered_after_end(
        &mut self,
        mut run: TimerRun,
        answer: RunAnswer,
        now: Now,
        steps: &mut Vec<EngineStep>,
    ) {
        if let RunAnswer::Failed(error) = &answer {
            self.metrics.failed_at_most_once.add(1);
            log::warn!("timer {} has failed, and is not tried again: {error}", run.row.key.id);
        }
        answer.discard(steps);
        let (id, row) = (run.row.key.id, run.replaced.take());
        row.into_iter().for_each(|row| self.go_on(&run, *row, steps));
        if !self.runs.contains(id) {
            self.next_command(id, now, steps);
        }
    }

    /// Returns whether the store has ended a run, whose handler is called afterwards.
    pub(super) fn has_ended(&self, run: &TimerRun) -> bool {
        self.rules[run.row.topic].delivery == Delivery::AtMostOnce
    }

    /// Hands the payload over: the engine does not need it any more.
    fn firing(&mut self, run: &mut TimerRun, now: Now) -> Firing {
        self.fired += 1;
        run.number = self.fired;
        let timeout = self.rules[run.row.topic].run_timeout;
        run.deadline = timeout.map(|timeout| now.monotonic.saturating_add(nanos(timeout)));
        let late = now.wall.saturating_sub(run.row.scheduled).max(0).unsigned_abs();
        let since_due = now.wall.saturating_sub(run.row.key.due).max(0).unsigned_abs();
        let lateness = Duration::from_millis(late);
        let row = TimerRow {
            payload: std::mem::take(&mut run.row.payload),
            idempotency_key: run.row.idempotency_key.take(),
            schedule: None,
            ..run.row
        };
        let deadline = timeout.map(|timeout| Self::due_after(now, timeout));
        let lease = self.lease.as_ref().filter(|_| !self.has_ended(run));
        let valid_until = lease.map(LeaseWatch::valid_until);
        Firing { row, run: run.number, deadline, missed: run.missed, lateness, since_due, valid_until }
    }

    /// Gives up the runs whose handlers have taken too long to answer. They have failed.
    pub(super) fn expire(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        while let Some(run) = self.runs.remove_expired(now.monotonic) {
            self.metrics.timed_out.add(1);
            let limit = self.rules[run.row.topic].run_timeout.unwrap_or_default();
            let error = format!("the handler did not answer within {limit:?}");
            if self.has_ended(&run) {
                self.answered_after_end(run, RunAnswer::Failed(error), now, steps);
            } else {
                self.fail(run, error, now, steps);
            }
        }
    }
}
