//! Handlers that end the program.

use super::{
    leases,
    simulation::{HOUR, LIMITS, SECOND, Simulation},
};
use crate::{
    durable::{
        engine::{Limits, Rules, message::RunAnswer},
        id::TimerId,
        policy::{Delivery, Late, Retry},
        store::{Begun, Lease, TimerState},
    },
    sync::completion,
};
use std::time::Duration;

fn simulation(retry: Retry) -> Simulation {
    Simulation::new(Late::RunOnce, retry.initial(Duration::from_secs(10)))
}

fn times_of(simulation: &Simulation, id: TimerId) -> Vec<i64> {
    simulation.fired.iter().filter(|fired| fired.id == id).map(|fired| fired.at).collect()
}

#[test]
fn a_handler_that_ends_the_program_is_retried_and_becomes_a_dead_letter_while_others_fire() {
    let mut simulation = simulation(Retry::backoff(3));
    let (deadly, other) = (simulation.start(SECOND), simulation.start(SECOND + 1));
    simulation.deadly = Some(deadly);
    simulation.run_until(HOUR);
    // The first end of the program costs no attempt: nothing was noted.
    let times = [SECOND, SECOND, 11 * SECOND, 31 * SECOND, 71 * SECOND];
    assert_eq!(times_of(&simulation, deadly), times);
    let attempts: Vec<u32> =
        simulation.fired.iter().filter(|fired| fired.id == deadly).map(|fired| fired.attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 3, 4]);
    assert_eq!(times_of(&simulation, other), [SECOND + 1]);
    let stored = simulation.stored();
    assert_eq!((stored.len(), stored[0].state, stored[0].attempts), (1, TimerState::Dead, 4));
    assert_eq!(stored[0].error.as_deref(), Some("the program ended during the run"));
    assert_eq!((simulation.crashes, simulation.metrics.interrupted.read()), (5, 4));
}

#[test]
fn a_periodic_timer_goes_on_after_a_run_that_ends_the_program() {
    let mut simulation = simulation(Retry::never());
    let deadly = simulation.periodic(SECOND, "every 60000");
    simulation.deadly = Some(deadly);
    simulation.run_until(30 * SECOND);
    assert_eq!(simulation.crashes, 2);
    simulation.deadly = None;
    simulation.run_until(62 * SECOND);
    assert_eq!(times_of(&simulation, deadly), [SECOND, SECOND, 61 * SECOND]);
    let states: Vec<_> = simulation.stored().iter().map(|info| (info.state, info.attempts)).collect();
    assert_eq!(states, [(TimerState::Pending, 0), (TimerState::Dead, 1)]);
}

/// Most of them were noted, but not called, when the program ended.
#[test]
fn timers_that_were_noted_together_with_a_deadly_one_all_run_and_lose_no_attempt() {
    let mut simulation = simulation(Retry::never());
    let ids: Vec<TimerId> = (0..60).map(|_| simulation.start(SECOND)).collect();
    simulation.deadly = Some(ids[40]);
    // It is not among the first, which begin alone, because the store has just been restarted.
    simulation.restart();
    simulation.run_until(HOUR);
    let stored = simulation.stored();
    assert_eq!(stored.iter().map(|info| info.id).collect::<Vec<_>>(), [ids[40]]);
    assert_eq!((stored[0].state, stored[0].attempts), (TimerState::Dead, 1));
    for id in ids.iter().filter(|id| **id != ids[40]) {
        let runs: Vec<_> = simulation.fired.iter().filter(|fired| fired.id == *id).collect();
        assert_eq!((runs.len(), runs[0].attempt), (1, 1), "{id}");
    }
}

#[test]
fn nothing_is_noted_after_a_store_was_closed() {
    let mut simulation = simulation(Retry::never());
    simulation.handler(|firing| {
        assert_eq!(firing.row.begun, Begun::No);
        None
    });
    simulation.start(SECOND);
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.stored()[0].attempts, 0);
}

#[test]
fn a_counted_attempt_that_fails_is_not_counted_twice() {
    let mut simulation = simulation(Retry::backoff(2));
    simulation.start(SECOND);
    simulation.restart();
    simulation.pass(2 * SECOND);
    simulation.handler(|_| Some(RunAnswer::Failed("no".to_owned())));
    simulation.run_until(HOUR);
    let attempts: Vec<u32> = simulation.fired.iter().map(|fired| fired.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(simulation.stored()[0].attempts, 3);
    assert_eq!(simulation.metrics.interrupted.read(), 0);
}

#[test]
fn timers_that_become_due_after_the_restart_are_not_noted() {
    let mut simulation = simulation(Retry::never());
    simulation.start(SECOND);
    simulation.start(5 * SECOND);
    simulation.restart();
    simulation.pass(2 * SECOND);
    simulation.handler(|_| None);
    simulation.run_until(6 * SECOND);
    let attempts: Vec<u32> = simulation.stored().iter().map(|info| info.attempts).collect();
    assert_eq!(attempts, [1, 0]);
}

/// The handler was not called, so the attempt is not lost.
#[test]
fn a_noted_run_that_waits_again_because_the_clock_was_set_back_keeps_its_attempt() {
    let mut simulation = simulation(Retry::never());
    let id = simulation.start(SECOND);
    simulation.restart();
    simulation.pass(2 * SECOND);
    // The clock is set back between the note and the call.
    simulation.poll();
    simulation.poll();
    assert_eq!((simulation.fired.len(), simulation.stored()[0].attempts), (0, 1));
    simulation.jump(-5 * SECOND);
    simulation.run_until(HOUR);
    assert_eq!((times_of(&simulation, id), simulation.fired[0].attempt), (vec![SECOND], 1));
    assert_eq!(simulation.stored(), []);
}

#[test]
fn suspects_do_not_block_each_other_while_their_handlers_work() {
    let mut simulation = simulation(Retry::never());
    (0..30).for_each(|_| {
        simulation.start(SECOND);
    });
    simulation.restart();
    simulation.pass(2 * SECOND);
    simulation.handler(|_| None);
    simulation.run_until(3 * SECOND);
    assert_eq!(simulation.fired.len(), 30);
}

#[test]
fn only_timers_of_partitions_whose_owner_was_lost_are_noted() {
    for (suspects, attempts) in [(vec![(0, 0)], 1), (vec![(1, 0)], 0)] {
        let lease = Lease { suspects, ..leases::lease() };
        let rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtLeastOnce);
        let limits = Limits { late_after: HOUR, ..LIMITS };
        let mut simulation = Simulation::with(rules, limits, Some(Some(lease)));
        simulation.handler(|_| None);
        simulation.start(SECOND);
        simulation.pass(2 * SECOND);
        simulation.run_until(5 * SECOND);
        assert_eq!(simulation.fired.len(), 1);
        assert_eq!(simulation.stored()[0].attempts, attempts);
    }
}

#[test]
fn a_close_ends_a_suspect_run_as_any_other() {
    let mut simulation = simulation(Retry::never());
    simulation.start(SECOND);
    simulation.restart();
    simulation.pass(2 * SECOND);
    simulation.poll();
    simulation.poll();
    let (completer, closed) = completion(None);
    simulation.tell(crate::durable::engine::message::EngineMessage::Close(completer));
    simulation.settle();
    assert!(closed.is_done());
    assert_eq!((simulation.fired.len(), simulation.stored().len()), (1, 0));
}
