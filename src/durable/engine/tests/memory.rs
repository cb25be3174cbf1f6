//! The window: the timers in memory, and that nothing is lost when it is full.

use super::simulation::{DAY, HOUR, LIMITS, MINUTE, SECOND, Simulation, new_timer};
use crate::durable::{
    engine::{
        Limits, Rules,
        message::{EngineMessage, RunAnswer},
    },
    policy::{Delivery, Late, Retry},
    store::{Change, Outcome},
};

fn limited(limits: Limits) -> Simulation {
    let rules = Rules::new(Late::RunOnce, Retry::never(), Delivery::AtLeastOnce);
    Simulation::with(rules, limits, None)
}

/// P-19.
#[test]
fn only_near_timers_are_loaded() {
    let mut simulation = limited(LIMITS);
    for after in [SECOND, 30 * SECOND, 5 * MINUTE, HOUR, DAY] {
        simulation.start(after);
    }
    simulation.settle();
    simulation.poll();
    assert_eq!(simulation.metrics.loaded.read(), 2);
    simulation.run_until(2 * DAY);
    assert_eq!(simulation.times(), [SECOND, 30 * SECOND, 5 * MINUTE, HOUR, DAY]);
}

/// P-19.
#[test]
fn a_full_window_drops_the_latest_and_loads_them_again() {
    for limits in [
        Limits { max_loaded: 1, ..LIMITS },
        Limits { max_loaded: 7, ..LIMITS },
        Limits { max_loaded_bytes: 1, ..LIMITS },
        Limits { max_loaded_bytes: 2000, ..LIMITS },
    ] {
        let mut simulation = limited(limits);
        // In an order that inserts in front of, between and behind the loaded timers.
        let mut times: Vec<i64> = (0..100).map(|n| (n * 37) % 100 * 100).collect();
        for (n, after) in times.iter().enumerate() {
            simulation.start(SECOND + after);
            if n % 10 == 0 {
                simulation.poll();
            }
            assert!(simulation.metrics.loaded.read() as usize <= limits.max_loaded);
        }
        simulation.run_until(MINUTE);
        times.sort_unstable();
        let times: Vec<i64> = times.into_iter().map(|after| SECOND + after).collect();
        assert_eq!(simulation.times(), times, "{limits:?}");
    }
}

#[test]
fn a_backlog_is_loaded_as_it_fires() {
    let mut simulation = limited(Limits { max_loaded: 65_536, max_loaded_bytes: 32 << 20, ..LIMITS });
    simulation.handler(|_| None);
    for _ in 0..5000 {
        simulation.start(SECOND);
    }
    simulation.pass(MINUTE);
    simulation.restart();
    (0..100).for_each(|_| simulation.poll());
    let loaded = simulation.metrics.loaded.read();
    assert!((1024..=3 * 1024).contains(&loaded), "{loaded} of 5000 are in memory");

    simulation.handler(|_| Some(RunAnswer::Done(None)));
    for open in std::mem::take(&mut simulation.fired) {
        simulation.answer_run(open.id, open.run, RunAnswer::Done(None));
    }
    simulation.run_until(2 * MINUTE);
    assert_eq!(simulation.stored(), []);
}

/// P-02.
#[test]
fn timers_of_one_millisecond_fire_in_the_order_of_their_starts() {
    let mut simulation = limited(Limits { max_loaded: 10, ..LIMITS });
    let ids: Vec<_> = (0..500).map(|_| simulation.start(SECOND)).collect();
    simulation.run_until(SECOND);
    assert_eq!(simulation.fired.iter().map(|fired| fired.id).collect::<Vec<_>>(), ids);
}

/// P-20.
#[test]
fn a_poll_fires_a_limited_number() {
    let mut simulation = limited(Limits { fires_per_turn: 3, ..LIMITS });
    for _ in 0..10 {
        simulation.start(SECOND);
    }
    simulation.settle();
    simulation.pass(SECOND);
    for fired in [3, 6, 9, 10, 10] {
        simulation.poll();
        assert_eq!(simulation.fired.len(), fired);
    }
}

/// P-20.
#[test]
fn runs_without_an_end_are_limited() {
    let mut simulation = limited(Limits { max_running: 2, ..LIMITS });
    simulation.handler(|_| None);
    let ids: Vec<_> = (0..5).map(|_| simulation.start(SECOND)).collect();
    simulation.run_until(MINUTE);
    assert_eq!(simulation.fired.len(), 2);
    simulation.answer(ids[0], RunAnswer::Done(None));
    simulation.settle();
    assert_eq!(simulation.fired.len(), 3);
    for id in &ids[1..] {
        simulation.answer(*id, RunAnswer::Done(None));
        simulation.settle();
    }
    assert_eq!(simulation.fired.iter().map(|fired| fired.id).collect::<Vec<_>>(), ids);
    for id in &ids[3..] {
        simulation.answer(*id, RunAnswer::Done(None));
    }
    assert_eq!(simulation.stored(), []);
}

#[test]
fn large_timers_in_memory_and_on_their_way_keep_to_the_limit() {
    for (payload, count) in [(60 << 10, 200), (1 << 20, 30)] {
        let limits = Limits { max_loaded_bytes: 8 << 20, max_running_bytes: 64 << 20, ..LIMITS };
        let mut simulation = limited(limits);
        for _ in 0..count {
            simulation.start_with(SECOND, payload);
        }
        // All come from the store.
        simulation.restart();
        simulation.run_until(MINUTE);
        assert_eq!(simulation.fired.len(), count);
        let largest = limits.max_loaded_bytes / 4 * 3 + payload + 1000;
        assert!(simulation.most_bytes > payload && simulation.most_bytes <= largest);
    }
}

#[test]
fn the_bytes_of_runs_without_an_end_are_limited() {
    for (payload, limit) in [(60 << 10, 256 << 10), (1 << 20, 4 << 20)] {
        let limits = Limits { max_running_bytes: limit, max_loaded_bytes: 64 << 20, ..LIMITS };
        let mut simulation = limited(limits);
        simulation.handler(|_| None);
        let ids: Vec<_> = (0..10).map(|_| simulation.start_with(SECOND, payload)).collect();
        simulation.run_until(MINUTE);
        let fit = limit / (payload + 1000);
        assert_eq!(simulation.fired.len(), fit);
        assert!(simulation.metrics.running_bytes.read() as usize <= limit);
        assert_eq!(simulation.engine.sleep(simulation.now).map(|sleep| sleep.as_secs()), Some(1));
        for (ended, id) in ids.iter().enumerate() {
            simulation.answer(*id, RunAnswer::Done(None));
            simulation.settle();
            assert_eq!(simulation.fired.len(), (ended + 1 + fit).min(10), "one for each that ends");
        }
        assert_eq!(simulation.metrics.running_bytes.read(), 0);
    }
}

#[test]
fn one_run_may_begin_however_large_it_is() {
    let mut simulation = limited(Limits { max_running_bytes: 1, ..LIMITS });
    simulation.handler(|_| None);
    let ids = [1 << 10, 1 << 19].map(|payload| simulation.start_with(SECOND, payload));
    for (ended, id) in ids.into_iter().enumerate() {
        simulation.run_until((2 + ended as i64) * SECOND);
        assert_eq!(simulation.fired.len(), ended + 1);
        simulation.answer(id, RunAnswer::Failed("no".to_owned()));
    }
}

/// The handler gets the payload, and the engine keeps no second one.
#[test]
fn the_payload_is_handed_over_and_is_there_again_in_the_retry() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::backoff(1));
    simulation.handler(|firing| {
        assert_eq!(firing.row.payload.len(), 5000);
        Some(RunAnswer::Failed("no".to_owned()))
    });
    simulation.start_with(SECOND, 5000);
    simulation.run_until(MINUTE);
    assert_eq!(simulation.fired.len(), 2);
    assert_eq!(simulation.stored()[0].payload.len(), 5000);
}

#[test]
fn a_timer_is_loaded_before_it_is_due() {
    let mut simulation = limited(LIMITS);
    for minute in 1..600 {
        simulation.start(minute * MINUTE);
    }
    simulation.run_until(600 * MINUTE);
    assert!(simulation.fired.iter().all(|fired| fired.at == fired.scheduled));
    assert_eq!(simulation.fired.len(), 599);
}

/// The engine did not receive some stored timers, because its inbox was full.
#[test]
fn timers_that_did_not_fit_into_the_inbox_are_loaded() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.start(3 * SECOND);
    simulation.settle();
    for after in [SECOND, 2 * SECOND] {
        let start = Change::Start(new_timer(after, None, None));
        assert!(matches!(simulation.commit(start), Outcome::Started(_)));
    }
    simulation.tell(EngineMessage::StartsDropped);
    simulation.run_until(MINUTE);
    assert_eq!(simulation.times(), [SECOND, 2 * SECOND, 3 * SECOND]);
}
