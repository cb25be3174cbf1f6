//! Concurrency limits of topics.

use super::simulation::{LIMITS, MINUTE, SECOND, Simulation};
use crate::durable::{
    engine::{Limits, Rules, message::RunAnswer, run::Firing},
    id::TimerId,
    policy::{Delivery, Late, Retry},
};

const FREE: Rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtLeastOnce);

fn limited(concurrency: usize) -> Rules {
    Rules { concurrency: Some(concurrency), ..FREE }
}

/// A simulation whose topic 0 has a limit, and whose handler of that topic never answers.
fn stuck(concurrency: usize, limits: Limits) -> Simulation {
    let mut simulation = Simulation::with_topics(vec![limited(concurrency), FREE], limits, None);
    simulation.handler(|firing: &Firing| (firing.row.topic == 1).then_some(RunAnswer::Done(None)));
    simulation
}

fn ids(simulation: &Simulation, topic: usize) -> Vec<TimerId> {
    simulation.fired.iter().filter(|fired| fired.topic == topic).map(|fired| fired.id).collect()
}

#[test]
fn a_topic_has_no_more_runs_than_its_limit_and_keeps_their_order() {
    let mut simulation = stuck(3, LIMITS);
    let started: Vec<TimerId> = (0..10).map(|n| simulation.start_in(0, SECOND + n)).collect();
    simulation.run_until(MINUTE);
    assert_eq!(ids(&simulation, 0), started[..3]);
    for answered in 0..10 {
        simulation.answer(started[answered], RunAnswer::Done(None));
        simulation.settle();
        assert_eq!(ids(&simulation, 0), started[..10.min(answered + 4)]);
    }
    assert_eq!(simulation.stored(), []);
}

#[test]
fn each_kind_of_answer_makes_room_for_the_next_run() {
    let retry = Retry::backoff(1);
    for answer in [|| RunAnswer::Done(None), || RunAnswer::Skip, || RunAnswer::Failed("no".to_owned())] {
        for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
            let retry = if delivery == Delivery::AtLeastOnce { retry } else { Retry::never() };
            let rules = Rules { delivery, retry, ..limited(1) };
            let mut simulation = Simulation::with_topics(vec![rules], LIMITS, None);
            simulation.handler(|_| None);
            let started: Vec<TimerId> = (0..3).map(|n| simulation.start_in(0, SECOND + n)).collect();
            simulation.run_until(MINUTE);
            assert_eq!(ids(&simulation, 0), started[..1]);
            simulation.answer(started[0], answer());
            simulation.settle();
            assert_eq!(ids(&simulation, 0), started[..2]);
        }
    }
}

/// A timer that was claimed waits again if the clock was set back, and a run of it is not counted.
#[test]
fn a_run_that_does_not_fire_gives_its_permit_back() {
    let mut simulation = Simulation::with_topics(vec![limited(1)], LIMITS, None);
    let id = simulation.start_in(0, SECOND);
    simulation.run_until(SECOND - 1);
    simulation.pass(1);
    let mut steps = Vec::new();
    let now = simulation.now;
    simulation.engine.begin_due(now, &mut steps);
    simulation.jump(-SECOND);
    simulation.run_until(MINUTE);
    assert_eq!(ids(&simulation, 0), [id]);
    assert_eq!(simulation.engine.permits()[0].taken(), 0);
}

#[test]
fn waiting_timers_of_a_topic_with_a_limit_do_not_fill_the_memory() {
    let limits = Limits { max_loaded: 40, ..LIMITS };
    let mut simulation = stuck(2, limits);
    for n in 0..500 {
        simulation.start_in(0, n);
    }
    // Due after all of those.
    let free: Vec<TimerId> = (0..100).map(|n| simulation.start_in(1, SECOND + 100 * n)).collect();
    let mut most = 0;
    for at in 0..600 {
        simulation.run_until(20 * at);
        most = most.max(simulation.metrics.loaded.read());
    }
    assert_eq!(ids(&simulation, 1), free);
    let late = simulation.fired.iter().filter(|fired| fired.topic == 1 && fired.at != fired.scheduled);
    assert_eq!(late.count(), 0);
    assert_eq!(ids(&simulation, 0).len(), 2);
    assert!(most <= limits.max_loaded as u64, "{most} timers in memory");
    // Most of the space is for the other topics.
    assert!(simulation.metrics.loaded.read() <= 20);
}

#[test]
fn a_backlog_behind_a_limit_is_run_in_order_and_loaded_in_pieces() {
    let limits = Limits { max_loaded: 40, ..LIMITS };
    let mut simulation = Simulation::with_topics(vec![limited(3), limited(1), FREE], limits, None);
    for n in 0..300 {
        for topic in 0..3 {
            simulation.start_in(topic, (n * 37) % 300);
        }
    }
    simulation.run_until(MINUTE);
    for topic in 0..3 {
        let times: Vec<i64> =
            simulation.fired.iter().filter(|fired| fired.topic == topic).map(|f| f.scheduled).collect();
        assert_eq!(times, (0..300).collect::<Vec<_>>(), "topic {topic}");
    }
    assert_eq!(simulation.stored(), []);
}

#[test]
fn a_node_that_needs_claims_keeps_the_limit() {
    let lease = super::leases::lease();
    let mut simulation = Simulation::with_topics(vec![limited(2), FREE], LIMITS, Some(Some(lease)));
    simulation.handler(|firing: &Firing| (firing.row.topic == 1).then_some(RunAnswer::Done(None)));
    let stuck: Vec<TimerId> = (0..5).map(|_| simulation.start_in(0, SECOND)).collect();
    let free: Vec<TimerId> = (0..5).map(|_| simulation.start_in(1, 2 * SECOND)).collect();
    simulation.run_until(MINUTE);
    assert_eq!(ids(&simulation, 0), stuck[..2]);
    assert_eq!(ids(&simulation, 1), free);
}
