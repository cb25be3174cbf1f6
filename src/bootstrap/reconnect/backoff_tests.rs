//! Tests of the backoff delays: their growth, their spread and their bounds.

use super::*;
use fastrand::Rng;
use proptest::prelude::*;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Returns the delays after `n` failed attempts in a row.
fn delays(backoff: Backoff, n: usize, seed: u64) -> Vec<Option<Duration>> {
    let (mut retries, mut dice) = (Retries::new(backoff), Rng::with_seed(seed));
    let mut next = || {
        retries.begin();
        retries.failed(&mut dice)
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn without_jitter_delays_grow_to_the_cap() {
    let backoff = Backoff::new().initial(ms(100)).factor(3.0).max_delay(ms(1000)).jitter(false);
    let expected = [100, 300, 900, 1000, 1000].map(|n| Some(ms(n)));
    assert_eq!(delays(backoff.clone(), 5, 1), expected);
    assert_eq!(delays(backoff.factor(1.0), 3, 1), [Some(ms(100)); 3], "a factor of 1 gives constant delays");
}

#[test]
fn full_jitter_is_spread_evenly_and_is_the_default() {
    const CLIENTS: u64 = 2000;
    // The fourth delay of many clients: up to 4 s by default.
    let fourth: Vec<u64> =
        (0..CLIENTS).map(|seed| delays(Backoff::new(), 4, seed)[3].unwrap().as_millis() as u64).collect();
    assert!(fourth.iter().all(|delay| *delay <= 4000));
    for quarter in 0..4 {
        let range = quarter * 1000..(quarter + 1) * 1000;
        let n = fourth.iter().filter(|delay| range.contains(*delay)).count();
        assert!((400..600).contains(&n), "{n} of {CLIENTS} in {range:?}: not evenly spread");
    }
    assert_eq!(delays(Backoff::new(), 9, 7), delays(Backoff::new(), 9, 7), "the seed alone decides");
    assert_ne!(delays(Backoff::new(), 9, 7), delays(Backoff::new(), 9, 8));
}

#[test]
fn it_gives_up_after_max_attempts() {
    let backoff = Backoff::new().max_attempts(3);
    let given_up: Vec<_> = delays(backoff.clone(), 4, 1).iter().map(Option::is_none).collect();
    assert_eq!(given_up, [false, false, true, true]);
    assert_eq!(delays(backoff.max_attempts(1), 1, 1), [None]);
    assert!(delays(Backoff::new(), 100_000, 1).iter().all(Option::is_some), "no limit by default");
}

#[test]
fn a_stable_connection_resets_attempts_and_delays() {
    let backoff = Backoff::new().initial(ms(100)).jitter(false).max_attempts(4).reset_after(ms(5000));
    let (mut retries, mut dice) = (Retries::new(backoff), Rng::with_seed(1));
    for (attempt, delay) in [(1, 100), (2, 200)] {
        assert_eq!(retries.begin(), attempt);
        assert_eq!(retries.failed(&mut dice), Some(ms(delay)));
    }
    assert_eq!(retries.begin(), 3);
    assert_eq!(
        retries.lost(ms(4999), Duration::ZERO, &mut dice),
        Some(ms(400)),
        "too short: counts as a failed attempt"
    );
    assert_eq!(retries.begin(), 4);
    assert_eq!(retries.lost(ms(5000), Duration::ZERO, &mut dice), Some(ms(100)), "the connection was stable");
    for (attempt, delay) in [(1, Some(200)), (2, Some(400)), (3, Some(800)), (4, None)] {
        assert_eq!(retries.begin(), attempt, "the count starts again");
        assert_eq!(retries.failed(&mut dice), delay.map(ms));
    }
}

#[test]
fn the_hint_of_a_server_precedes_the_delay_and_is_limited() {
    let backoff = Backoff::new().initial(ms(100)).jitter(false).max_hint_delay(ms(5000));
    let (mut retries, mut dice) = (Retries::new(backoff.clone()), Rng::with_seed(1));
    assert_eq!(retries.failed_with_hint(ms(3000), &mut dice), Some(ms(3100)));
    assert_eq!(retries.failed_with_hint(Duration::MAX, &mut dice), Some(ms(5200)));
    assert_eq!(retries.failed(&mut dice), Some(ms(400)), "a hint applies once");
    assert_eq!(retries.lost(ms(30_000), ms(2000), &mut dice), Some(ms(2100)), "also after a stable one");
    let mut deaf = Retries::new(backoff.max_hint_delay(Duration::ZERO));
    assert_eq!(deaf.failed_with_hint(ms(3000), &mut dice), Some(ms(100)));
    let mut spread = Retries::new(Backoff::new());
    let delays: Vec<_> = (0..100).filter_map(|_| spread.failed_with_hint(ms(10_000), &mut dice)).collect();
    assert!(delays.iter().all(|delay| *delay >= ms(10_000)), "full jitter follows the hint");
    assert!(delays.iter().any(|delay| *delay > ms(11_000)));
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let good = Backoff::new();
    for (backoff, name) in [
        (good.clone().initial(Duration::ZERO), "initial"),
        (good.clone().factor(0.99), "factor"),
        (good.clone().factor(1001.0), "factor"),
        (good.clone().factor(f64::NAN), "factor"),
        (good.clone().max_delay(ms(499)), "max_delay"),
        (good.clone().max_attempts(0), "max_attempts"),
    ] {
        match backoff.check() {
            Err(Error::Setting(refused)) => assert_eq!(refused.setting(), name),
            other => panic!("{backoff:?}: {other:?}"),
        }
    }
    for backoff in
        [good.clone(), good.clone().max_delay(ms(500)), good.factor(1.0).reset_after(Duration::ZERO)]
    {
        backoff.check().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No delay exceeds its bound, and the bound follows from the settings, for any sequence of
    /// events.
    #[test]
    fn delays_are_within_their_bounds(
        initial in 1u64..10_000_000_000,
        factor in 1.0f64..=1000.0,
        more in 0u64..10_000_000_000_000,
        jitter: bool,
        reset_after in 0u64..1000,
        seed: u64,
        steps in proptest::collection::vec(prop_oneof![Just(None), (0u64..2000).prop_map(Some)], 1..200),
    ) {
        let (initial, cap) = (Duration::from_nanos(initial), Duration::from_nanos(initial.saturating_add(more)));
        let backoff = Backoff::new().initial(initial).factor(factor).max_delay(cap).jitter(jitter).reset_after(ms(reset_after));
        prop_assert!(backoff.check().is_ok());
        let (mut retries, mut dice) = (Retries::new(backoff), Rng::with_seed(seed));
        // Computed step by step, unlike the power in the code.
        let mut bound = initial.as_secs_f64();
        for held in steps {
            retries.begin();
            let delay = match held {
                None => retries.failed(&mut dice),
                Some(held) => {
                    if held >= reset_after {
                        bound = initial.as_secs_f64();
                    }
                    retries.lost(ms(held), Duration::ZERO, &mut dice)
                }
            };
            let delay = delay.expect("no limit of attempts");
            prop_assert!(delay <= cap);
            let expected = bound.min(cap.as_secs_f64());
            prop_assert!(delay.as_secs_f64() <= expected * (1.0 + 1e-9) + 1e-9, "{delay:?} beyond {expected} s");
            if !jitter {
                prop_assert!(delay.as_secs_f64() >= expected * (1.0 - 1e-9) - 1e-9, "{delay:?} before {expected} s");
            }
            bound = (bound * factor).min(1e12);
        }
    }
}
