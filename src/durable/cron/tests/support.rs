//! Runs as text.

use crate::durable::cron::{expression::Cron, zone::Zone};
use jiff::{Timestamp, tz::TimeZoneDatabase};

/// Parses an expression with the bundled rules, which are the same on each machine.
pub(super) fn cron(expression: &str, zone: &str) -> Cron {
    Cron::with_rules(expression, zone, Zone::bundled(zone)).unwrap()
}

/// Parses an instant such as `2026-03-29T03:00+02:00`.
pub(super) fn millis(instant: &str) -> i64 {
    instant.parse::<Timestamp>().unwrap().as_millisecond()
}

/// Returns the first `count` runs after `after`, in the time of the zone, separated by spaces.
pub(super) fn runs(cron: &Cron, after: &str, count: usize) -> String {
    let zone = TimeZoneDatabase::bundled().get(cron.zone()).unwrap();
    let local = |run| Timestamp::from_millisecond(run).unwrap().to_zoned(zone.clone());
    let runs = cron.runs_after(millis(after)).take(count);
    let text = |run| local(run).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    // Leaves out the second 0.
    runs.map(|run| text(run).replacen(":00+", "+", 1).replacen(":00-", "-", 1)).collect::<Vec<_>>().join(" ")
}

/// Checks that the next runs after `after` are exactly `expected`, which are separated by spaces.
pub(super) fn assert_runs(expression: &str, zone: &str, after: &str, expected: &str) {
    let expected = expected.split_ascii_whitespace().collect::<Vec<_>>();
    let found = runs(&cron(expression, zone), after, expected.len());
    assert_eq!(found, expected.join(" "), "{expression} in {zone} after {after}");
}
