//! Periodic timers that get another schedule.

use super::simulation::{HOUR, MINUTE, SECOND, START, Simulation, failure, new_timer};
use crate::durable::{
    engine::{
        Rules,
        message::{EngineMessage, RunAnswer},
    },
    id::TimerId,
    policy::{Delivery, Late, Retry},
    store::{Change, Outcome},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

fn simulation() -> Simulation {
    Simulation::new(Late::RunOnce, Retry::backoff(1).initial(Duration::from_secs(10)))
}

/// P-12.
#[test]
fn a_run_under_way_is_ended_and_the_next_one_follows_the_new_schedule() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let id = simulation.keyed(SECOND, "every 5000");
    simulation.run_until(SECOND);
    assert_eq!(simulation.keyed(61 * SECOND, "every 60000"), id);
    let effects = Arc::new(AtomicU32::new(0));
    let counter = effects.clone();
    simulation.done_with(
        id,
        Box::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }),
    );
    assert_eq!(effects.load(Ordering::Relaxed), 1);
    simulation.handler(|_| Some(RunAnswer::Done(None)));
    simulation.run_until(3 * MINUTE);
    assert_eq!(simulation.times(), [SECOND, 61 * SECOND, 121 * SECOND]);
    assert_eq!(simulation.metrics.stale.read(), 0);
}

/// P-12.
#[test]
fn an_at_most_once_run_is_followed_by_the_new_schedule() {
    let rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtMostOnce);
    let mut simulation = Simulation::with(rules, super::simulation::LIMITS, None);
    simulation.keyed(SECOND, "every 5000");
    simulation.settle();
    simulation.pass(SECOND);
    // The store gets the new schedule before the end of the run, and the engine learns of both.
    simulation.before_change = Some(Box::new(|simulation| {
        simulation.keyed(61 * SECOND, "every 60000");
    }));
    simulation.run_until(3 * MINUTE);
    assert_eq!(simulation.times(), [SECOND, 61 * SECOND, 121 * SECOND]);
}

/// P-12.
#[test]
fn a_schedule_without_another_run_ends_the_timer() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let id = simulation.keyed(SECOND, "every 5000");
    simulation.run_until(SECOND);
    simulation.keyed(2 * SECOND, &format!("every {}", crate::durable::unix_millis::LATEST));
    simulation.answer(id, RunAnswer::Done(None));
    simulation.run_until(HOUR);
    assert_eq!(simulation.times(), [SECOND]);
    assert_eq!(simulation.stored(), []);
}

/// P-12.
#[test]
fn a_run_that_is_late_is_not_dropped_by_a_new_schedule() {
    let mut simulation = simulation();
    simulation.keyed(SECOND, "every 5000");
    simulation.restart();
    simulation.pass(MINUTE);
    simulation.keyed(MINUTE + HOUR, "every 3600000");
    simulation.run_until(HOUR);
    assert_eq!(simulation.scheduled(), [SECOND], "and nothing between, because the interval is an hour");
    simulation.run_until(2 * HOUR);
    assert_eq!(simulation.scheduled(), [SECOND, SECOND + HOUR]);
}

/// P-12.
#[test]
fn a_failed_run_is_retried_after_a_new_schedule() {
    let mut simulation = simulation();
    simulation.handler(|_| Some(RunAnswer::Failed("no".to_owned())));
    simulation.keyed(SECOND, "every 5000");
    simulation.run_until(2 * SECOND);
    simulation.keyed(MINUTE, "every 60000");
    simulation.handler(|_| Some(RunAnswer::Done(None)));
    simulation.run_until(2 * MINUTE);
    assert_eq!(simulation.times(), [SECOND, 11 * SECOND, 61 * SECOND]);
    assert_eq!(simulation.fired[1].attempt, 2);
}

/// The state of a timer that others have changed during a run arrives before the end of the run is
/// refused.
#[test]
fn a_timer_that_others_move_during_a_run_fires_at_its_new_time() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let id = simulation.start(SECOND);
    simulation.run_until(SECOND);
    moved_by_others(&mut simulation, id, 30 * SECOND);
    simulation.answer(id, RunAnswer::Done(None));
    assert_eq!(simulation.metrics.stale.read(), 1);
    simulation.handler(|_| Some(RunAnswer::Done(None)));
    simulation.run_until(MINUTE);
    assert_eq!(simulation.times(), [SECOND, 30 * SECOND]);
    assert_eq!(simulation.stored(), []);
}

#[test]
fn a_timer_that_others_move_during_a_run_is_forgotten_with_the_store() {
    let mut simulation = simulation();
    simulation.handler(|_| None);
    let id = simulation.start(SECOND);
    simulation.run_until(SECOND);
    moved_by_others(&mut simulation, id, 30 * SECOND);
    simulation.tell(EngineMessage::Stopped(failure()));
    simulation.answer(id, RunAnswer::Done(None));
    simulation.run_until(MINUTE);
    assert_eq!(simulation.times(), [SECOND]);
}

fn moved_by_others(simulation: &mut Simulation, id: TimerId, after: i64) {
    match simulation.commit(Change::Move { id, due: START + after }) {
        Outcome::Done(Some(row)) => simulation.tell(EngineMessage::Stored(row)),
        other => panic!("{other:?}"),
    }
}

/// Both have the same due time, but only one of them is the run that failed.
#[test]
fn a_retry_at_the_time_of_the_next_run_survives_a_new_schedule() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::backoff(1));
    simulation.handler(|_| None);
    let id = simulation.keyed(SECOND, "every 1000");
    simulation.run_until(SECOND);
    simulation.keyed(HOUR, "every 3600000");
    simulation.answer(id, RunAnswer::Failed("no".to_owned()));
    simulation.handler(|_| Some(RunAnswer::Done(None)));
    simulation.run_until(MINUTE);
    assert_eq!(simulation.scheduled(), [SECOND, SECOND]);
}

#[test]
fn a_periodic_start_with_the_key_of_a_one_shot_timer_changes_nothing() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.handler(|_| None);
    let timer = new_timer(SECOND, None, Some("key"));
    let Outcome::Started(row) = simulation.commit(Change::Start(timer)) else { panic!("not started") };
    let id = row.key.id;
    simulation.tell(EngineMessage::Stored(row));
    assert_eq!(simulation.keyed(MINUTE, "every 60000"), id, "while it is pending");
    simulation.run_until(SECOND);
    assert_eq!(simulation.keyed(MINUTE, "every 60000"), id, "while it runs");
    simulation.answer(id, RunAnswer::Done(None));
    assert!(simulation.stored().is_empty());
    simulation.run_until(HOUR);
    assert_eq!(simulation.times(), [SECOND]);
}
