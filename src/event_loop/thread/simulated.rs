//! A loop that the driver of a simulation runs.
//!
//! Invariant: the loop's code runs within the calls of [`LoopRun`] only, on the thread of the
//! simulation, with the machine of its node entered.

use super::{
    drop_turn, end,
    invariants::{Invariants, violation_at_end},
};
use crate::{
    error::caught,
    event_loop::{
        WakeCause, simulated_ready, tasks,
        turn::{Turn, Wait},
    },
    machine::simulated::{LoopRun, Next, PollId, Polled, ReadyEvent, forget_channels, violate},
    sync::loop_id,
};

pub(super) struct SimulatedLoop {
    /// `None` once the loop has ended.
    turn: Option<Turn>,
    wait: Wait,
    invariants: Invariants,
}

impl SimulatedLoop {
    pub(super) fn new(turn: Turn) -> Self {
        SimulatedLoop { turn: Some(turn), wait: Wait::NotAtAll, invariants: Invariants::default() }
    }

    /// Runs `call` on the loop's thread. Ends the loop after its last turn, and after a panic.
    fn call(&mut self, call: impl FnOnce(&mut Turn) -> Option<Wait>) -> Next {
        let Some(turn) = &mut self.turn else { return Next::Ended };
        let _entered = enter(turn);
        let mut wait = None;
        let cause = caught(|| wait = call(turn));
        let (Some(wait), None) = (wait, &cause) else {
            if let Some(turn) = self.turn.take() {
                let (shared, has_failed) = (turn.shared.clone(), cause.is_some());
                end(turn, cause, None);
                if !has_failed && let Some(violation) = violation_at_end(&shared) {
                    violate(|| format!("{}: {violation}", shared.name));
                }
                forget_channels(shared.id);
            }
            return Next::Ended;
        };
        self.wait = wait;
        let now = turn.io.services.now;
        match wait {
            Wait::NotAtAll => Next::Now,
            Wait::Until(deadline) => Next::After(deadline.saturating_sub(now)),
            Wait::Forever => Next::Event,
            Wait::Rest(until) => Next::Rest(until.saturating_sub(now)),
        }
    }
}

/// Makes the calling thread the loop's thread, until the result is dropped.
fn enter(turn: &Turn) -> (loop_id::Entered, tasks::LocalQueue) {
    (loop_id::enter(turn.shared.id), tasks::enter(turn.shared.id, turn.io.services.queue.clone()))
}

impl LoopRun for SimulatedLoop {
    fn begin(&mut self) -> Next {
        self.call(|turn| Some(turn.fall_asleep()))
    }

    fn turn(&mut self, polled: Polled, events: &[ReadyEvent]) -> Next {
        let wait = self.wait;
        self.call(|turn| {
            let polled = match polled {
                Polled::Events => Ok(Some(WakeCause::Io)),
                Polled::Woken => Ok(Some(WakeCause::Waker)),
                Polled::Nothing if wait == Wait::NotAtAll => Ok(Some(WakeCause::NotAsleep)),
                Polled::Nothing => Ok(None),
                Polled::Interrupted => Ok(Some(WakeCause::Interrupted)),
                Polled::Failed(e) => Err(e),
            };
            let last =
                turn.resume(wait, polled, events.iter().map(|event| (event.token, simulated_ready(event))));
            if last { None } else { Some(turn.fall_asleep()) }
        })
    }

    fn rested(&mut self) -> Next {
        self.call(|turn| Some(turn.fall_asleep()))
    }

    fn poll(&self) -> Option<PollId> {
        self.turn.as_ref()?.io.selector.simulated()
    }

    fn name(&self) -> &str {
        self.turn.as_ref().map_or("", |turn| &turn.shared.name)
    }

    fn check(&mut self) -> Option<String> {
        let wait = self.wait;
        match &mut self.turn {
            Some(turn) => self.invariants.violation(turn, wait),
            None => None,
        }
    }

    fn lost_wakeup(&self, runs_next: bool) -> Option<&'static str> {
        self.invariants.lost_wakeup(self.turn.as_ref()?, self.wait, runs_next)
    }

    fn kill(self: Box<Self>) {
        let Some(turn) = self.turn else { return };
        let _entered = enter(&turn);
        let shared = turn.shared.clone();
        forget_channels(shared.id);
        // The process is gone: no handler is notified, and handles see a loop that has ended.
        shared.advance(crate::event_loop::shared::LifeState::Terminated);
        drop_turn(turn);
        shared.set_terminated(Some("the process was killed".to_owned()));
    }
}
