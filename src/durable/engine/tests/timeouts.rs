//! Handlers that do not answer in time.

use super::simulation::{HOUR, LIMITS, MINUTE, SECOND, Simulation};
use crate::{
    durable::{
        engine::{
            Limits, Rules,
            message::{RunAnswer, TimerCommand},
        },
        policy::{Delivery, Late, Retry},
        store::TimerState,
    },
    sync::completion,
};
use std::{cell::RefCell, rc::Rc, time::Duration};

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));

/// A simulation whose handlers never answer.
fn silent(retry: Retry, delivery: Delivery, limits: Limits) -> Simulation {
    let rules = Rules { run_timeout: TIMEOUT, ..Rules::new(Late::RunOnce, retry, delivery) };
    let mut simulation = Simulation::with(rules, limits, None);
    simulation.handler(|_| None);
    simulation
}

#[test]
fn a_run_without_an_answer_in_time_is_retried_and_becomes_a_dead_letter() {
    let retry = Retry::backoff(1).initial(Duration::from_secs(10));
    let mut simulation = silent(retry, Delivery::AtLeastOnce, LIMITS);
    let deadlines = Rc::new(RefCell::new(Vec::new()));
    let seen = deadlines.clone();
    simulation.handler(move |firing| {
        seen.borrow_mut().push(firing.deadline.unwrap() - super::simulation::START);
        None
    });
    simulation.start(SECOND);
    simulation.run_until(HOUR);
    assert_eq!(simulation.times(), [SECOND, 41 * SECOND]);
    assert_eq!(*deadlines.borrow(), [31 * SECOND, 71 * SECOND]);
    let stored = simulation.stored();
    assert_eq!((stored[0].state, stored[0].attempts), (TimerState::Dead, 2));
    assert_eq!(stored[0].error.as_deref(), Some("the handler did not answer within 30s"));
    assert_eq!(simulation.metrics.timed_out.read(), 2);
}

#[test]
fn a_late_answer_has_no_effect_also_while_the_retry_runs() {
    let retry = Retry::backoff(1).initial(Duration::from_secs(10));
    let mut simulation = silent(retry, Delivery::AtLeastOnce, LIMITS);
    let id = simulation.start(SECOND);
    simulation.run_until(35 * SECOND);
    let first = simulation.fired[0].run;
    simulation.answer_run(id, first, RunAnswer::Done(None));
    assert_eq!(simulation.stored().len(), 1, "it waits for its retry");
    simulation.run_until(42 * SECOND);
    simulation.answer_run(id, first, RunAnswer::Done(None));
    assert_eq!(simulation.stored().len(), 1, "the retry runs");
    assert_eq!(simulation.metrics.late_answers.read(), 2);
    simulation.answer(id, RunAnswer::Done(None));
    assert_eq!(simulation.stored(), []);
    simulation.run_until(HOUR);
    assert_eq!((simulation.fired.len(), simulation.metrics.timed_out.read()), (2, 1));
}

#[test]
fn an_answer_in_time_ends_the_wait() {
    let mut simulation = silent(Retry::never(), Delivery::AtLeastOnce, LIMITS);
    let id = simulation.periodic(SECOND, "every 60000");
    simulation.run_until(30 * SECOND);
    simulation.answer(id, RunAnswer::Done(None));
    simulation.run_until(MINUTE);
    assert_eq!((simulation.fired.len(), simulation.metrics.timed_out.read()), (1, 0));
    assert_eq!(simulation.engine.sleep(simulation.now), Some(Duration::from_secs(1)));
}

#[test]
fn a_time_limit_frees_the_places_of_silent_handlers() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        let mut simulation = silent(Retry::never(), delivery, Limits { max_running: 2, ..LIMITS });
        for _ in 0..5 {
            simulation.start(SECOND);
        }
        simulation.run_until(29 * SECOND);
        assert_eq!(simulation.fired.len(), 2);
        simulation.run_until(3 * MINUTE);
        assert_eq!(simulation.fired.len(), 5, "{delivery:?}");
        let is_once = delivery == Delivery::AtMostOnce;
        assert_eq!(simulation.metrics.failed_at_most_once.read(), if is_once { 5 } else { 0 });
        assert_eq!(simulation.stored().len(), if is_once { 0 } else { 5 });
    }
}

#[test]
fn a_close_waits_for_a_silent_handler_no_longer_than_its_time_limit() {
    let mut simulation = silent(Retry::never(), Delivery::AtLeastOnce, LIMITS);
    simulation.start(SECOND);
    simulation.run_until(2 * SECOND);
    let (completer, closed) = completion(None);
    simulation.tell(crate::durable::engine::message::EngineMessage::Close(completer));
    simulation.run_until(30 * SECOND);
    assert!(!closed.is_done());
    simulation.run_until(32 * SECOND);
    assert!(closed.is_done());
}

/// A timeout is not measured by the wall clock.
#[test]
fn a_clock_that_is_set_does_not_end_a_run() {
    let mut simulation = silent(Retry::never(), Delivery::AtLeastOnce, LIMITS);
    simulation.start(SECOND);
    simulation.run_until(2 * SECOND);
    simulation.jump(HOUR);
    simulation.run_until(HOUR + 20 * SECOND);
    assert_eq!(simulation.metrics.timed_out.read(), 0);
    simulation.run_until(HOUR + 40 * SECOND);
    assert_eq!(simulation.metrics.timed_out.read(), 1);
}

#[test]
fn a_command_waits_no_longer_than_the_time_limit() {
    let mut simulation = silent(Retry::backoff(3), Delivery::AtLeastOnce, LIMITS);
    let id = simulation.start(SECOND);
    simulation.run_until(2 * SECOND);
    let cancelled = simulation.command(id, TimerCommand::Cancel);
    simulation.run_until(HOUR);
    assert!(matches!(cancelled.take(), Some(Ok(true))));
    assert_eq!(simulation.fired.len(), 1);
}
