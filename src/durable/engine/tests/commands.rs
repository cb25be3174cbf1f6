//! Cancel, move and run, at every stage of a timer's life.

use super::simulation::{DAY, HOUR, LIMITS, MINUTE, SECOND, START, Simulation, failure};
use crate::{
    durable::{
        engine::{
            Limits, Rules,
            message::{EngineMessage, RunAnswer, TimerCommand},
        },
        id::TimerId,
        policy::{Delivery, Late, Retry},
        store::{Lease, TimerState},
    },
    error::Error,
    sync::completion,
};
use std::time::Duration;

fn simulation() -> Simulation {
    Simulation::new(Late::RunOnce, Retry::backoff(1).initial(Duration::from_secs(10)))
}

/// P-10.
#[test]
fn a_cancelled_timer_does_not_fire() {
    let mut simulation = simulation();
    let (near, far) = (simulation.start(SECOND), simulation.start(DAY));
    simulation.settle();
    assert_eq!(simulation.command(near, TimerCommand::Cancel).take().unwrap().ok(), Some(true));
    assert_eq!(simulation.command(far, TimerCommand::Cancel).take().unwrap().ok(), Some(true));
    assert_eq!(simulation.command(far, TimerCommand::Cancel).take().unwrap().ok(), Some(false));
    simulation.run_until(2 * DAY);
    assert_eq!(simulation.fired, []);
    assert_eq!(simulation.stored(), []);
}

#[test]
fn a_moved_timer_fires_at_its_new_time_only() {
    let mut simulation = simulation();
    let later = simulation.start(SECOND);
    let earlier = simulation.start(DAY);
    simulation.settle();
    let start = START;
    assert!(simulation.command(later, TimerCommand::MoveTo(start + HOUR)).take().unwrap().unwrap());
    assert!(simulation.command(earlier, TimerCommand::MoveTo(start + MINUTE)).take().unwrap().unwrap());
    simulation.run_until(2 * DAY);
    assert_eq!(simulation.times(), [MINUTE, HOUR]);
}

/// P-10.
#[test]
fn a_command_on_a_running_timer_waits_for_its_end() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let id = simulation.start(SECOND);
    simulation.run_until(SECOND);
    let cancelled = simulation.command(id, TimerCommand::Cancel);
    assert!(!cancelled.is_done());
    simulation.answer(id, RunAnswer::Done(None));
    assert!(!cancelled.take().unwrap().unwrap(), "it has run");
}

/// P-10.
#[test]
fn cancelling_a_running_periodic_timer_prevents_its_next_run() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let id = simulation.periodic(SECOND, "every 1000");
    simulation.run_until(SECOND);
    let cancelled = simulation.command(id, TimerCommand::Cancel);
    simulation.answer(id, RunAnswer::Done(None));
    assert!(cancelled.take().unwrap().unwrap());
    simulation.run_until(MINUTE);
    assert_eq!(simulation.fired.len(), 1);
}

#[test]
fn cancelling_a_run_that_fails_prevents_its_retry() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let id = simulation.start(SECOND);
    simulation.run_until(SECOND);
    let cancelled = simulation.command(id, TimerCommand::Cancel);
    simulation.answer(id, RunAnswer::Failed("no".to_owned()));
    assert!(cancelled.take().unwrap().unwrap());
    simulation.run_until(HOUR);
    assert_eq!(simulation.fired.len(), 1);
}

/// P-09.
#[test]
fn run_now_fires_pending_timers_and_dead_letters() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    let id = simulation.start(DAY);
    simulation.handler(|_| Some(RunAnswer::Failed("no".to_owned())));
    assert!(simulation.command(id, TimerCommand::RunNow).take().unwrap().unwrap());
    simulation.settle();
    assert_eq!(simulation.times(), [0]);
    let stored = simulation.stored();
    assert_eq!((stored[0].state, stored[0].error.as_deref()), (TimerState::Dead, Some("no")));

    simulation.handler(|_| Some(RunAnswer::Done(None)));
    assert!(simulation.command(id, TimerCommand::RunNow).take().unwrap().unwrap());
    simulation.settle();
    assert_eq!(simulation.times(), [0, 0]);
    assert_eq!(simulation.stored(), []);
}

#[test]
fn commands_on_unknown_timers_are_false() {
    let mut simulation = simulation();
    for command in [TimerCommand::Cancel, TimerCommand::MoveTo(0), TimerCommand::RunNow] {
        let done = simulation.command(TimerId::new(17), command);
        assert_eq!(done.take().unwrap().ok(), Some(false), "{command:?}");
    }
}

#[test]
fn a_failed_command_leaves_its_timer_pending() {
    let mut simulation = simulation();
    let id = simulation.start(SECOND);
    simulation.settle();
    // The store answers the command with an error, as when the disk is full.
    let (completer, done) = completion(None);
    let permits = std::sync::Arc::new(crate::sync::Permits::new(1));
    let permit = crate::durable::engine::permit::Permit::take(&permits).unwrap();
    let asked =
        crate::durable::engine::message::Asked { id, command: TimerCommand::Cancel, completer, permit };
    let mut steps = Vec::new();
    simulation.engine.handle(EngineMessage::Asked(asked), simulation.now, &mut steps);
    assert_eq!(steps.len(), 1, "the change is not carried out");
    simulation.tell(EngineMessage::CommandFailed { id, error: Error::other("disk full") });
    assert!(done.take().unwrap().is_err());
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.times(), [SECOND]);
    assert_eq!(permits.taken(), 0);
}

/// P-24.
#[test]
fn close_waits_for_runs_and_refuses_commands() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let (running, pending) = (simulation.start(SECOND), simulation.start(2 * SECOND));
    simulation.run_until(SECOND);
    let (completer, closed) = completion(None);
    simulation.tell(EngineMessage::Close(completer));
    simulation.run_until(3 * SECOND);
    assert_eq!(simulation.times(), [SECOND], "nothing fires while closing");
    assert!(!closed.is_done());
    assert!(matches!(simulation.command(pending, TimerCommand::Cancel).take(), Some(Err(Error::ShutDown))));
    simulation.answer(running, RunAnswer::Done(None));
    simulation.poll();
    assert!(closed.take().unwrap().is_ok());
    assert_eq!(simulation.stored().len(), 1);
}

/// P-22.
#[test]
fn a_store_that_stops_ends_everything_with_its_error() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let id = simulation.start(SECOND);
    simulation.start(MINUTE);
    simulation.run_until(SECOND);
    let waiting = simulation.command(id, TimerCommand::Cancel);
    simulation.tell(EngineMessage::Stopped(failure()));
    assert!(waiting.take().unwrap().unwrap_err().to_string().contains("fsync"));
    simulation.run_until(HOUR);
    assert_eq!(simulation.times(), [SECOND]);
    let error = simulation.command(id, TimerCommand::RunNow).take().unwrap().unwrap_err();
    assert!(error.to_string().contains("fsync"));
    let (completer, closed) = completion(None);
    simulation.tell(EngineMessage::Close(completer));
    assert!(closed.take().unwrap().is_err());
}

#[test]
fn a_paused_engine_obeys_commands_and_fires_nothing() {
    let rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtLeastOnce);
    // It would have a lease if it asked for one.
    let lease = Lease {
        partitions: Vec::new(),
        draining: Vec::new(),
        suspects: Vec::new(),
        needs_reload: false,
        valid_for: Duration::MAX,
        renew_after: Duration::MAX,
    };
    let limits = Limits { is_paused: true, ..LIMITS };
    let mut simulation = Simulation::with(rules, limits, Some(Some(lease)));
    let ids = [simulation.start(SECOND), simulation.start(DAY), simulation.start(DAY)];
    simulation.settle();
    assert!(simulation.command(ids[0], TimerCommand::Cancel).take().unwrap().unwrap());
    assert!(simulation.command(ids[1], TimerCommand::RunNow).take().unwrap().unwrap());
    assert!(simulation.command(ids[2], TimerCommand::MoveTo(START + HOUR)).take().unwrap().unwrap());
    simulation.run_until(2 * DAY);
    assert_eq!(simulation.fired, []);
    assert_eq!(simulation.engine.sleep(simulation.now), Some(Duration::from_secs(1)), "it does not spin");
    let due: Vec<_> = simulation.stored().iter().map(|info| info.due).collect();
    assert_eq!(due, [START, START + HOUR].map(crate::durable::unix_millis::system_time));
}
