//! Timers that other connections store.

use super::simulation::{LIMITS, SECOND, Simulation};
use crate::durable::{
    engine::{Limits, Rules, message::EngineMessage},
    policy::{Delivery, Late, Retry},
};

fn simulation(limits: Limits) -> Simulation {
    let rules = Rules {
        late: Late::RunOnce,
        retry: Retry::never(),
        delivery: Delivery::AtLeastOnce,
        concurrency: None,
        run_timeout: None,
    };
    Simulation::with(rules, limits, None)
}

#[test]
fn a_timer_of_another_process_is_found_within_a_second() {
    let mut simulation = simulation(Limits { has_other_writers: true, ..LIMITS });
    simulation.run_until(1500);
    let [soon, later] = [1600, 5 * SECOND].map(|after| simulation.start_elsewhere(after));
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.times(), [2 * SECOND, 5 * SECOND]);
    assert_eq!(simulation.fired.iter().map(|fired| fired.id).collect::<Vec<_>>(), [soon, later]);
    assert_eq!(simulation.looks, (0..=10).map(|n| n * SECOND).collect::<Vec<_>>());
}

#[test]
fn after_a_hint_a_timer_is_found_soon_also_if_its_transaction_takes_a_while() {
    for has_other_writers in [false, true] {
        let mut simulation = simulation(Limits { has_other_writers, ..LIMITS });
        simulation.run_until(1500);
        simulation.tell(EngineMessage::StartHinted);
        simulation.start_elsewhere(1500);
        simulation.run_until(1600);
        simulation.start_elsewhere(1600);
        simulation.run_until(30 * SECOND);
        assert_eq!(simulation.times(), [1505, 1660]);
        let is_regular = simulation.looks.last() == Some(&(29 * SECOND + 780));
        assert_eq!(is_regular, has_other_writers, "{:?}", simulation.looks);
    }
}

#[test]
fn a_paused_engine_does_not_look() {
    let limits = Limits { has_other_writers: true, is_paused: true, ..LIMITS };
    let mut simulation = simulation(limits);
    simulation.tell(EngineMessage::StartHinted);
    simulation.run_until(10 * SECOND);
    assert!(simulation.looks.is_empty());
}
