//! The commands of a program: cancel, move, run.

use super::{Asked, Command, Engine, Now, Purpose, State, Step};
use crate::{
    Error,
    durable::{
        TimerId,
        store::{Change, Outcome},
    },
};

impl Engine {
    /// Passes a command to the store, after the run or the command that the timer is busy with.
    pub(super) fn asked(&mut self, asked: Asked, now: Now, steps: &mut Vec<Step>) {
        match &self.state {
            State::Active => {}
            State::Closing(_) => return steps.push(Step::Complete(asked.completer, Err(Error::ShutDown))),
            State::Stopped(error) => {
                let error = error.clone().unwrap_or(Error::ShutDown);
                return steps.push(Step::Complete(asked.completer, Err(error)));
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
            Command::Cancel => Change::Cancel(id),
            Command::MoveTo(due) => Change::Move { id, due },
            Command::RunNow => Change::Move { id, due: now.wall },
        };
        steps.push(Step::Change { id, change, purpose: Purpose::Command });
    }

    /// Starts the next command that waits for a timer.
    pub(super) fn next_command(&mut self, id: TimerId, now: Now, steps: &mut Vec<Step>) {
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
        steps: &mut Vec<Step>,
    ) -> Option<Outcome> {
        let Some((completer, _permit)) = self.changing.remove(&id) else { return Some(outcome) };
        let result = match &outcome {
            Outcome::Refused(error) => Err(error.clone().into()),
            Outcome::Missing => Ok(false),
            _ => Ok(true),
        };
        steps.push(Step::Complete(completer, result));
        outcome.into_row().into_iter().for_each(|row| self.insert(row));
        self.next_command(id, now, steps);
        None
    }

    pub(super) fn command_failed(&mut self, id: TimerId, error: Error, now: Now, steps: &mut Vec<Step>) {
        if let Some((completer, _permit)) = self.changing.remove(&id) {
            steps.push(Step::Complete(completer, Err(error)));
        }
        // The timer may be in the part that counts as loaded, so load it again.
        self.window.clear();
        self.next_command(id, now, steps);
    }
}
