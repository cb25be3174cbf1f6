//! How much one turn of the loop does.

use super::simulation::{LIMITS, MINUTE, SECOND, START, Simulation};
use crate::{
    durable::{
        engine::{
            Engine, Limits, Now, Rules,
            message::{EngineMessage, EngineStep, RunAnswer, TimerCommand},
        },
        id::TimerId,
        metrics::Metrics,
        policy::{Delivery, Late, Retry},
        store::{Begun, DueKey, Loaded, Outcome, TimerRow},
    },
    sync::completion,
};
use std::sync::Arc;

const AT_MOST_ONCE: Rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtMostOnce);

fn row(id: i64) -> TimerRow {
    TimerRow {
        key: DueKey { due: START, id: TimerId::new(id) },
        topic: 0,
        scheduled: START,
        attempts: 0,
        begun: Begun::No,
        idempotency_key: None,
        schedule: None,
        payload: b"null".to_vec(),
        partition: 0,
        epoch: 0,
    }
}

/// The answers of the store arrive together, after a long commit.
#[test]
fn a_burst_of_permissions_is_spread_over_turns() {
    let limits = Limits { fires_per_turn: 4, ..LIMITS };
    let mut engine = Engine::new(vec![AT_MOST_ONCE], limits, false, Arc::new(Metrics::default()));
    let now = Now { wall: START, monotonic: 0 };
    let mut steps = Vec::new();
    engine.poll(now, &mut steps);
    let is_load = |step: &EngineStep| matches!(step, EngineStep::Load(_));
    let Some(EngineStep::Load(range)) = steps.drain(..).find(is_load) else { panic!("not loaded") };
    let loaded = Loaded { rows: (1..=80).map(row).collect(), is_complete: true };
    engine.handle(EngineMessage::Loaded { range, loaded }, now, &mut steps);
    (0..20).for_each(|_| engine.poll(now, &mut steps));
    let asked = |step: EngineStep| match step {
        EngineStep::Change { id, .. } => id,
        _ => panic!("not asked for a permission"),
    };
    let ids: Vec<TimerId> = steps.drain(..).map(asked).collect();
    assert_eq!(ids.len(), 80);
    for id in &ids {
        engine.handle(EngineMessage::Changed { id: *id, outcome: Outcome::Done(None) }, now, &mut steps);
    }
    let mut fired = Vec::new();
    for turn in 1..=20 {
        assert_eq!(engine.sleep(now).map(|sleep| sleep.is_zero()), Some(true), "there is more to do");
        engine.poll(now, &mut steps);
        fired.extend(steps.drain(..).filter_map(|step| match step {
            EngineStep::Fire(firing) => Some(firing.row.key.id),
            _ => None,
        }));
        assert_eq!(fired.len(), turn * 4);
    }
    assert_eq!(fired, ids, "in their order");
}

/// A periodic at-most-once timer whose first run is stored as ended, and not fired yet.
fn ready() -> (Simulation, TimerId) {
    let mut simulation = Simulation::with(AT_MOST_ONCE, LIMITS, None);
    let id = simulation.periodic(SECOND, "every 1000");
    simulation.run_until(SECOND - 1);
    simulation.pass(1);
    simulation.poll();
    assert_eq!((simulation.fired.len(), simulation.metrics.ended.read()), (0, 1));
    (simulation, id)
}

#[test]
fn runs_that_have_ended_do_not_overlap() {
    let mut simulation = Simulation::with(AT_MOST_ONCE, LIMITS, None);
    simulation.handler(|_| None);
    let id = simulation.periodic(SECOND, "every 1000");
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.times(), [SECOND]);
    simulation.answer(id, RunAnswer::Done(None));
    simulation.run_until(10 * SECOND + 1);
    assert_eq!(simulation.times(), [SECOND, 10 * SECOND]);
}

#[test]
fn runs_that_have_ended_and_have_no_answer_are_limited() {
    let limits = Limits { max_running: 5, ..LIMITS };
    let mut simulation = Simulation::with(AT_MOST_ONCE, limits, None);
    simulation.handler(|_| None);
    (0..8).for_each(|_| {
        simulation.start(SECOND);
    });
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.times().len(), 5);
    let ids: Vec<TimerId> = simulation.fired.iter().map(|fired| fired.id).collect();
    ids.into_iter().for_each(|id| simulation.answer(id, RunAnswer::Failed("no".to_owned())));
    simulation.run_until(11 * SECOND);
    assert_eq!(simulation.times().len(), 8);
    assert!(simulation.stored().is_empty());
}

#[test]
fn a_cancel_waits_for_a_run_that_is_about_to_fire() {
    let (mut simulation, id) = ready();
    let cancelled = simulation.command(id, TimerCommand::Cancel);
    assert!(!cancelled.is_done());
    simulation.run_until(MINUTE);
    assert!(matches!(cancelled.take(), Some(Ok(true))));
    assert_eq!(simulation.times(), [SECOND]);
}

#[test]
fn a_run_that_is_about_to_fire_has_ended_and_is_not_lost_when_the_timers_are_closed() {
    let (mut simulation, _) = ready();
    let (completer, closed) = completion(None);
    simulation.tell(EngineMessage::Close(completer));
    assert_eq!((closed.is_done(), simulation.fired.len()), (false, 0));
    simulation.settle();
    assert!(closed.is_done());
    assert_eq!(simulation.times(), [SECOND]);
}

#[test]
fn a_run_that_is_about_to_fire_has_ended_and_is_not_lost_when_the_store_stops() {
    let (mut simulation, _) = ready();
    simulation.tell(EngineMessage::Stopped(super::simulation::failure()));
    assert_eq!(simulation.times(), [SECOND]);
    simulation.run_until(MINUTE);
    assert_eq!(simulation.times(), [SECOND]);
}

/// It has ended already, so it cannot wait.
#[test]
fn a_run_that_has_ended_fires_although_the_clock_was_set_back() {
    let (mut simulation, _) = ready();
    simulation.jump(-10 * SECOND);
    simulation.poll();
    assert_eq!(simulation.scheduled(), [SECOND]);
}

#[test]
fn a_load_that_fails_is_repeated_after_a_pause() {
    let mut engine = Engine::new(vec![AT_MOST_ONCE], LIMITS, false, Arc::new(Metrics::default()));
    let mut now = Now { wall: START, monotonic: 0 };
    let mut loads = 0;
    for _ in 0..100 {
        let mut steps = Vec::new();
        engine.poll(now, &mut steps);
        for step in steps {
            let EngineStep::Load(_) = step else { continue };
            loads += 1;
            engine.handle(EngineMessage::LoadFailed, now, &mut Vec::new());
        }
        let sleep = engine.sleep(now).unwrap();
        assert!(!sleep.is_zero());
        now.monotonic += u64::try_from(sleep.as_nanos()).unwrap() / 2;
    }
    let passed = now.monotonic / 100_000_000;
    assert!((1..=passed + 1).contains(&loads), "{loads} loads in {passed} times 100 ms");
}

/// The store is slow. The engine does not poll all the time until it answers.
#[test]
fn a_suspect_that_waits_for_another_one_keeps_no_loop_busy() {
    let rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtLeastOnce);
    let mut engine = Engine::new(vec![rules], LIMITS, false, Arc::new(Metrics::default()));
    engine.suspect_store();
    let now = Now { wall: START, monotonic: 0 };
    let mut steps = Vec::new();
    engine.poll(now, &mut steps);
    let is_load = |step: &EngineStep| matches!(step, EngineStep::Load(_));
    let Some(EngineStep::Load(range)) = steps.drain(..).find(is_load) else { panic!("not loaded") };
    let loaded = Loaded { rows: vec![row(1), row(2)], is_complete: true };
    engine.handle(EngineMessage::Loaded { range, loaded }, now, &mut steps);
    engine.poll(now, &mut steps);
    let changes = steps.drain(..).filter(|step| matches!(step, EngineStep::Change { .. })).count();
    assert_eq!(changes, 1, "one suspect begins");
    assert_eq!(engine.sleep(now).map(|sleep| sleep.is_zero()), Some(false), "the other one waits");
    engine.handle(
        EngineMessage::Changed { id: TimerId::new(1), outcome: Outcome::Done(None) },
        now,
        &mut steps,
    );
    engine.poll(now, &mut steps);
    assert_eq!(engine.sleep(now).map(|sleep| sleep.is_zero()), Some(true), "the handler was called");
}
