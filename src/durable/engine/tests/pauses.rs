//! Paused topics.

use super::{
    leases::lease,
    simulation::{LIMITS, MINUTE, SECOND, START, Simulation},
};
use crate::durable::{
    engine::{
        Engine, Limits, Now, Rules,
        message::{EngineMessage, EngineStep, RunAnswer, TimerCommand},
    },
    id::TimerId,
    metrics::Metrics,
    policy::{Delivery, Late, Retry},
    store::{Loaded, TopicSet},
};
use std::sync::Arc;

const RULES: Rules = Rules::new(Late::RunOnce, Retry::backoff(1), Delivery::AtLeastOnce);

fn topics(rules: &[Rules]) -> Simulation {
    Simulation::with_topics(rules.to_vec(), LIMITS, None)
}

#[test]
fn timers_of_a_paused_topic_wait_in_the_store_and_run_when_it_goes_on() {
    for concurrency in [None, Some(2)] {
        let mut simulation = topics(&[Rules { concurrency, ..RULES }, RULES]);
        let waiting: Vec<TimerId> = (0..5).map(|n| simulation.start_in(0, SECOND + n)).collect();
        simulation.settle();
        simulation.poll();
        assert_eq!(simulation.metrics.loaded.read(), 5);
        simulation.pause(0, true);
        let other = simulation.start_in(1, 2 * SECOND);
        let later = simulation.start_in(0, 3 * SECOND);
        simulation.run_until(10 * SECOND);
        assert_eq!(simulation.fired.iter().map(|fired| fired.id).collect::<Vec<_>>(), [other]);
        assert_eq!(simulation.metrics.loaded.read(), 0);
        simulation.pause(0, false);
        simulation.run_until(11 * SECOND);
        let fired: Vec<TimerId> = simulation.fired[1..].iter().map(|fired| fired.id).collect();
        assert_eq!(fired, [waiting, vec![later]].concat());
        assert!(simulation.fired[1..].iter().all(|fired| fired.at == 10 * SECOND));
        assert_eq!(simulation.stored(), []);
    }
}

#[test]
fn the_policy_for_late_timers_applies_after_a_pause() {
    let mut simulation = topics(&[Rules { late: Late::Skip, ..RULES }]);
    simulation.start(SECOND);
    simulation.start(9 * SECOND + 500);
    simulation.pause(0, true);
    simulation.run_until(10 * SECOND);
    simulation.pause(0, false);
    simulation.run_until(11 * SECOND);
    assert_eq!(simulation.scheduled(), [9 * SECOND + 500]);
    assert_eq!(simulation.metrics.skipped.read(), 1);
}

#[test]
fn a_run_without_an_answer_goes_on_in_a_pause_and_its_retry_waits() {
    let mut simulation = topics(&[RULES]);
    simulation.handler(|_| None);
    let first = simulation.start(SECOND);
    let second = simulation.start(SECOND);
    simulation.run_until(SECOND);
    assert_eq!(simulation.fired.len(), 2);
    simulation.pause(0, true);
    simulation.answer(first, RunAnswer::Done(None));
    simulation.answer(second, RunAnswer::Failed("no".to_owned()));
    simulation.run_until(MINUTE);
    assert_eq!((simulation.fired.len(), simulation.stored().len()), (2, 1));
    simulation.pause(0, false);
    simulation.run_until(MINUTE + SECOND);
    assert_eq!((simulation.fired.len(), simulation.fired[2].attempt), (3, 2));
}

#[test]
fn a_command_on_a_timer_of_a_paused_topic_is_done_at_once() {
    let mut simulation = topics(&[RULES]);
    let (cancelled, run) = (simulation.start(SECOND), simulation.start(MINUTE));
    simulation.pause(0, true);
    assert!(matches!(simulation.command(cancelled, TimerCommand::Cancel).take(), Some(Ok(true))));
    assert!(matches!(simulation.command(run, TimerCommand::RunNow).take(), Some(Ok(true))));
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.fired, []);
    simulation.pause(0, false);
    simulation.settle();
    assert_eq!(simulation.fired.iter().map(|fired| fired.id).collect::<Vec<_>>(), [run]);
}

#[test]
fn a_full_memory_of_a_paused_topic_leaves_room_for_the_others() {
    let limits = Limits { max_loaded: 10, ..LIMITS };
    let mut simulation = Simulation::with_topics(vec![RULES, RULES], limits, None);
    for n in 0..100 {
        simulation.start_in(0, n);
    }
    simulation.pause(0, true);
    let free: Vec<TimerId> = (0..30).map(|n| simulation.start_in(1, SECOND + n)).collect();
    simulation.run_until(MINUTE);
    assert_eq!(simulation.fired.iter().map(|fired| fired.id).collect::<Vec<_>>(), free);
    assert!(simulation.fired.iter().all(|fired| fired.at == fired.scheduled));
}

/// Their claims are answered before the engine learns of the pause.
#[test]
fn claimed_runs_of_a_paused_topic_wait_in_the_store() {
    let mut simulation = Simulation::with_topics(vec![RULES, RULES], LIMITS, Some(Some(lease())));
    let paused: Vec<TimerId> = (0..50).map(|_| simulation.start_in(0, SECOND)).collect();
    let other = simulation.start_in(1, SECOND);
    simulation.run_until(SECOND - 1);
    simulation.pass(1);
    simulation.poll();
    assert_eq!((simulation.fired.len(), simulation.metrics.running.read()), (0, 51));
    simulation.pause(0, true);
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.fired.iter().map(|fired| fired.id).collect::<Vec<_>>(), [other]);
    assert_eq!((simulation.stored().len(), simulation.metrics.running.read()), (50, 0));
    simulation.pause(0, false);
    simulation.run_until(11 * SECOND);
    assert_eq!(simulation.fired[1..].iter().map(|fired| fired.id).collect::<Vec<_>>(), paused);
    assert_eq!(simulation.stored(), []);
}

/// The attempt was counted, but its handler was not called.
#[test]
fn a_pause_costs_a_suspect_no_attempt() {
    let mut simulation = topics(&[Rules { retry: Retry::never(), ..RULES }]);
    let id = simulation.start(SECOND);
    simulation.restart();
    simulation.pass(2 * SECOND);
    simulation.poll();
    simulation.poll();
    assert_eq!((simulation.fired.len(), simulation.stored()[0].attempts), (0, 1));
    simulation.pause(0, true);
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.fired, []);
    simulation.pause(0, false);
    simulation.run_until(11 * SECOND);
    let fired: Vec<_> = simulation.fired.iter().map(|fired| (fired.id, fired.attempt)).collect();
    assert_eq!((fired, simulation.metrics.interrupted.read()), (vec![(id, 1)], 0));
    assert_eq!(simulation.stored(), []);
}

/// The store has ended it, so it would be lost otherwise.
#[test]
fn an_at_most_once_run_that_has_ended_in_the_store_fires_in_a_pause() {
    let mut simulation = topics(&[Rules { delivery: Delivery::AtMostOnce, ..RULES }]);
    let id = simulation.start(SECOND);
    simulation.run_until(SECOND - 1);
    simulation.pass(1);
    simulation.poll();
    assert_eq!((simulation.fired.len(), simulation.stored()), (0, Vec::new()));
    simulation.pause(0, true);
    simulation.settle();
    assert_eq!(simulation.fired.iter().map(|fired| fired.id).collect::<Vec<_>>(), [id]);
}

/// Otherwise the timers of the topic would count as loaded.
#[test]
fn the_answer_of_a_load_without_a_topic_that_goes_on_is_not_used() {
    let mut engine = Engine::new(vec![RULES, RULES], LIMITS, false, Arc::new(Metrics::default()));
    let now = Now { wall: START, monotonic: 0 };
    let mut steps = Vec::new();
    let mut load = |engine: &mut Engine| {
        engine.poll(now, &mut steps);
        steps.drain(..).find_map(|step| if let EngineStep::Load(range) = step { Some(range) } else { None })
    };
    let empty = || Loaded { rows: Vec::new(), is_complete: true };
    let paused =
        |topics: &[usize]| EngineMessage::Paused { topics: topics.iter().copied().collect(), pausing: None };
    engine.handle(paused(&[1]), now, &mut Vec::new());
    let range = load(&mut engine).unwrap();
    assert_eq!(range.topics, [0].into_iter().collect::<TopicSet>());
    engine.handle(paused(&[]), now, &mut Vec::new());
    engine.handle(EngineMessage::Loaded { range, loaded: empty() }, now, &mut Vec::new());
    let range = load(&mut engine).unwrap();
    assert_eq!(range.topics, [0, 1].into_iter().collect::<TopicSet>());
    engine.handle(EngineMessage::Loaded { range, loaded: empty() }, now, &mut Vec::new());
    assert!(load(&mut engine).is_none());
    // A pause alone leaves the answer as it is.
    engine.handle(EngineMessage::StartsDropped, now, &mut Vec::new());
    let range = load(&mut engine).unwrap();
    engine.handle(paused(&[0]), now, &mut Vec::new());
    engine.handle(EngineMessage::Loaded { range, loaded: empty() }, now, &mut Vec::new());
    assert!(load(&mut engine).is_none());
}

#[test]
fn limits_and_pauses_keep_the_order_of_each_topic_and_lose_nothing() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let concurrency = [None, Some(1), Some(3), None];
        let rules: Vec<Rules> = concurrency.map(|concurrency| Rules { concurrency, ..RULES }).to_vec();
        let limits = Limits { max_loaded: random.usize(1..30), max_running: 8, fires_per_turn: 3, ..LIMITS };
        let mut simulation = Simulation::with_topics(rules, limits, None);
        simulation.handler(|_| None);
        let mut expected: Vec<Vec<(i64, TimerId)>> = vec![Vec::new(); 4];
        for _ in 0..300 {
            let (topic, due) = (random.usize(..4), random.i64(SECOND..20 * SECOND));
            expected[topic].push((due, simulation.start_in(topic, due)));
        }
        let mut answered = 0;
        for at in 1..2000 {
            simulation.run_until(20 * at);
            if random.u32(..20) == 0 {
                simulation.pause(random.usize(..4), at < 1000 && random.bool());
            }
            // In any order, but as long as there are more runs than one, not all of them.
            while answered < simulation.fired.len() && random.u32(..4) > 0 {
                let id = simulation.fired[answered].id;
                simulation.answer(id, RunAnswer::Done(None));
                answered += 1;
            }
        }
        for topic in 0..4 {
            simulation.pause(topic, false);
        }
        while answered < simulation.fired.len() {
            let id = simulation.fired[answered].id;
            simulation.answer(id, RunAnswer::Done(None));
            simulation.settle();
            answered += 1;
        }
        assert_eq!(simulation.stored(), [], "seed {seed}");
        for (topic, mut expected) in expected.into_iter().enumerate() {
            expected.sort_unstable();
            let fired = simulation.fired.iter().filter(|fired| fired.topic == topic);
            let fired: Vec<_> = fired.map(|fired| (fired.scheduled, fired.id)).collect();
            assert_eq!(fired, expected, "seed {seed}, topic {topic}");
        }
    }
}
