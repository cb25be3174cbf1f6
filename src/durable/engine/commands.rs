//! The commands of a program: cancel, move, run.

use super::{
    Engine, Now, State,
    message::{Asked, EngineStep, Purpose, TimerCommand},
};
use crate::{
    durable::{
        id::TimerId,
        store::{Change, Outcome},
    },
    error::Error,
};

impl Engine {
    /// Passes a command to the store, after the run or the command that the timer is busy with.
    pub(super) fn asked(&mut self, asked: Asked, now: Now, steps: &mut Vec<EngineStep>) {
        match &self.state {
            State::Active => {}
            State::Closing(_) => {
                return steps.push(EngineStep::Complete(asked.completer, Err(Error::ShutDown)));
            }
            State::Stopped(error) => {
                let error = error.clone().unwrap_or(Error::ShutDown);
                return steps.push(EngineStep::Complete(asked.completer, Err(error)));
            }
        }
        let Asked { id, command, .. } = asked;
        if self.runs.contains(id) || self.changing.contains_key(&id) {
            self.waiting.entry(id).or_default().push_back(asked);
            return;
        }
        self.window.remove(id);
        self.caught_up.remove(&id);
        self.changing.insert(id, (asked.completer, asked.permit));
        let change = match command {
            TimerCommand::Cancel => Change::Cancel(id),
            TimerCommand::MoveTo(due) => Change::Move { id, due },
            TimerCommand::RunNow => Change::Move { id, due: now.wall },
        };
        steps.push(EngineStep::Change { id, change, purpose: Purpose::TimerCommand });
    }

    /// Starts the next command that waits for a timer.
    pub(super) fn next_command(&mut self, id: TimerId, now: Now, steps: &mut Vec<EngineStep>) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&id);
        }
        if let Some(asked) = next {
            self.asked(asked, now, steps);
        }
    }

    /// Completes the command on a timer, if there is one. Hands the outcome back if it belongs to a
    /// run.
    pub(super) fn command_done(
        &mut self,
        id: TimerId,
        outcome: Outcome,
        now: Now,
        steps: &mut Vec<EngineStep>,
    ) -> Option<Outcome> {
        let Some((completer, _permit)) = self.changing.remove(&id) else { return Some(outcome) };
        let result = match &outcome {
            Outcome::Refused(error) => Err(error.clone().into()),
            Outcome::Missing => Ok(false),
            _ => Ok(true),
        };
        steps.push(EngineStep::Complete(completer, result));
        outcome.into_row().into_iter().for_each(|row| self.insert(row));
        self.next_command(id, now, steps);
        None
    }

    pub(super) fn command_failed(
        &mut self,
        id: TimerId,
        error: Error,
        now: Now,
        steps: &mut Vec<EngineStep>,
    ) {
        if let Some((completer, _permit)) = self.changing.remove(&id) {
            steps.push(EngineStep::Complete(completer, Err(error)));
        }
        // The timer may be in the part that counts as loaded, so load it again.
        self.window.clear();
        self.next_command(id, now, steps);
    }
}
