//! The bounds of the search, and its helpers.

use super::{
    support::{cron, millis, runs},
    work::steps,
};

const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "Africa/Casablanca", "America/New_York"];

#[test]
fn a_frequent_run_takes_few_steps() {
    for expression in ["* * * * * *", "*/15 * * * *", "0 9 * * *", "0 9 * * MON-FRI", "30 2 L * *"] {
        for zone in ZONES {
            let cron = cron(expression, zone);
            let after = millis("2026-03-28T12:00Z");
            let (_, steps) = steps(|| cron.runs_after(after).take(1000).count());
            assert!(steps <= 5 * 1000, "{expression} in {zone}: {steps}");
        }
    }
}

#[test]
fn the_rarest_run_takes_a_bounded_number_of_steps() {
    // 480 months and 80 transitions in 40 years.
    for (expression, limit) in [("0 0 * 2 MON#5", 600), ("* * * 2 MON#5", 600), ("0 0 29 2 *", 150)] {
        for zone in ZONES {
            let cron = cron(expression, zone);
            let most = (1990..2390).map(|year| {
                let after = millis(&format!("{year}-03-02T12:00Z"));
                steps(|| cron.next_after(after).unwrap()).1
            });
            let most = most.max().unwrap();
            assert!(most <= limit, "{expression} in {zone}: {most}");
        }
    }
}

#[test]
fn a_date_that_never_comes_takes_one_cycle_of_the_calendar() {
    let (result, steps) = steps(|| crate::durable::cron::expression::Cron::new("0 0 30 2 *", "UTC"));
    assert!(result.is_err());
    assert!(steps <= 400 * 12 + 1, "{steps}");
}

#[test]
fn runs_end_with_the_year_9999() {
    for expression in ["* * * * * *", "0 0 1 1 *", "0 0 29 2 *", "0 12 * * *"] {
        for zone in ZONES {
            let cron = cron(expression, zone);
            for late in [i64::MAX, i64::MAX - 1, millis("9999-12-30T00:00Z") + 48 * 3_600_000] {
                let (run, steps) = steps(|| cron.next_after(late));
                assert_eq!(run, None, "{expression} in {zone} after {late}");
                assert!(steps <= 30, "{steps}");
            }
            let early = cron.next_after(i64::MIN).unwrap();
            assert!(early >= millis("0000-12-31T00:00Z"), "{early}");
            assert_eq!(cron.next_after(early - 1), Some(early));
        }
    }
    let last = cron("0 0 1 1 *", "UTC").next_after(millis("9998-06-01T00:00Z"));
    assert_eq!(last, Some(millis("9999-01-01T00:00Z")));
}

#[test]
fn counts_stop_at_their_limit() {
    let cron = cron("*/15 * * * *", "UTC");
    let (from, to) = (millis("2026-01-01T00:00Z"), millis("2026-01-01T02:00Z"));
    assert_eq!(cron.count_between(from, to, 100), 8);
    assert_eq!(cron.count_between(from - 1, to - 1, 100), 8);
    assert_eq!(cron.count_between(from - 1, to, 100), 9);
    assert_eq!(cron.count_between(from, to, 8), 8);
    assert_eq!(cron.count_between(from, to, 3), 3);
    assert_eq!(cron.count_between(from, to, 0), 0);
    assert_eq!(cron.count_between(to, from, 100), 0);
    let (count, steps) = steps(|| cron.count_between(from, i64::MAX, 10));
    assert!(count == 10 && steps <= 50, "{count} runs in {steps} steps");
}

#[test]
fn rules_of_the_system_are_used() {
    let cron = crate::durable::cron::expression::Cron::new("0 9 * * *", "Europe/Berlin").unwrap();
    let expected = "2026-07-02T09:00+02:00 2026-07-03T09:00+02:00";
    assert_eq!(runs(&cron, "2026-07-01T12:00Z", 2), expected);
}
