//! What follows from the answers of handlers.

use super::simulation::{HOUR, LIMITS, MINUTE, SECOND, Simulation};
use crate::durable::{
    engine::{Rules, message::RunAnswer},
    policy::{Delivery, Late, Retry},
    store::{MemoryTransaction, TimerState},
};
use std::time::Duration;

fn failing() -> Simulation {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::backoff(2).initial(Duration::from_secs(10)));
    simulation.handler(|_| Some(RunAnswer::Failed("no".to_owned())));
    simulation
}

/// P-08.
#[test]
fn a_failed_run_is_tried_again_and_becomes_a_dead_letter() {
    let mut simulation = failing();
    simulation.start(SECOND);
    simulation.run_until(HOUR);
    assert_eq!(simulation.times(), [SECOND, 11 * SECOND, 31 * SECOND]);
    assert_eq!(simulation.scheduled(), [SECOND; 3]);
    assert_eq!(simulation.fired.iter().map(|fired| fired.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    let stored = simulation.stored();
    assert_eq!((stored.len(), stored[0].state, stored[0].attempts), (1, TimerState::Dead, 3));
    assert_eq!(simulation.metrics.retried.read(), 2);
    assert_eq!(simulation.metrics.dead_lettered.read(), 1);
}

/// P-08.
#[test]
fn a_periodic_timer_goes_on_beside_its_dead_letter() {
    let mut simulation = failing();
    simulation.periodic(SECOND, "every 60000");
    simulation.run_until(MINUTE);
    simulation.handler(|_| Some(RunAnswer::Done(None)));
    simulation.run_until(2 * MINUTE);
    assert_eq!(simulation.times(), [SECOND, 11 * SECOND, 31 * SECOND, 61 * SECOND]);
    let stored = simulation.stored();
    assert_eq!(stored.len(), 2);
    assert_eq!((stored[0].state, stored[0].attempts), (TimerState::Pending, 0));
    assert_eq!((stored[1].state, stored[1].attempts), (TimerState::Dead, 3));
    assert_eq!(stored[1].schedule, None);
}

/// P-08.
#[test]
fn a_retry_survives_a_restart_with_its_attempts() {
    let mut simulation = failing();
    simulation.start(SECOND);
    simulation.run_until(12 * SECOND);
    simulation.restart();
    simulation.run_until(HOUR);
    assert_eq!(simulation.fired.iter().map(|fired| fired.attempt).collect::<Vec<_>>(), [1, 2, 3]);
}

/// P-04.
#[test]
fn a_run_without_an_answer_fires_again_after_a_restart() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.handler(|_| None);
    simulation.start(SECOND);
    simulation.run_until(MINUTE);
    assert_eq!(simulation.fired.len(), 1);
    simulation.restart();
    simulation.run_until(2 * MINUTE);
    assert_eq!(simulation.fired.len(), 2);
}

/// P-05.
#[test]
fn at_most_once_ends_before_the_handler_is_called() {
    let rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtMostOnce);
    let mut simulation = Simulation::with(rules, LIMITS, None);
    simulation.handler(|_| None);
    simulation.start(SECOND);
    simulation.periodic(2 * SECOND, "every 1000");
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.scheduled(), [SECOND, 2 * SECOND]);
    simulation.restart();
    simulation.run_until(3 * SECOND);
    assert_eq!(simulation.scheduled(), [SECOND, 2 * SECOND, 3 * SECOND]);
}

/// P-06.
#[test]
fn an_effect_is_stored_with_the_end_and_its_failure_undoes_nothing_else() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::backoff(1).initial(Duration::from_secs(1)));
    simulation.handler(|_| None);
    let id = simulation.start(SECOND);
    simulation.run_until(SECOND);
    simulation.done_with(
        id,
        Box::new(|transaction| {
            transaction.connection::<MemoryTransaction>()?.put("mine", "1");
            Err("changed my mind".into())
        }),
    );
    assert_eq!(simulation.stored()[0].error.as_deref(), Some("changed my mind"));
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.fired.len(), 2);
    simulation.done_with(
        id,
        Box::new(|transaction| {
            let rows = transaction.connection::<MemoryTransaction>()?;
            assert_eq!(rows.get("mine"), None, "the row of the first attempt is gone");
            rows.put("mine", "2");
            Ok(())
        }),
    );
    assert_eq!(simulation.stored(), []);
}

#[test]
fn a_schedule_that_is_not_understood_becomes_a_dead_letter() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.periodic(SECOND, "moon phases");
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.fired, []);
    let stored = simulation.stored();
    assert_eq!(stored[0].state, TimerState::Dead);
    assert!(stored[0].error.as_ref().unwrap().contains("moon phases"));
}

#[test]
fn long_errors_are_shortened_at_a_character() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.handler(|_| Some(RunAnswer::Failed(format!("x{}", "é".repeat(2000)))));
    simulation.start(SECOND);
    simulation.run_until(SECOND);
    assert_eq!(simulation.stored()[0].error.as_ref().unwrap().len(), 1023);
}

#[test]
fn an_answer_that_comes_twice_or_late_has_no_effect() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.handler(|_| None);
    let id = simulation.start(SECOND);
    simulation.run_until(SECOND);
    simulation.answer(id, RunAnswer::Done(None));
    simulation.answer(id, RunAnswer::Failed("late".to_owned()));
    assert_eq!(simulation.stored(), []);
    assert_eq!(simulation.metrics.dead_lettered.read(), 0);
}
