//! Cron expressions: their runs, compared with the slow implementation of the unit tests.

#[path = "../../../../src/durable/cron/tests/oracle.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of the library's tests")]
mod oracle;

use crate::support::input;
use arbitrary::Arbitrary;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use netwheel::durable::Cron;
use oracle::Oracle;
use std::time::{Duration, SystemTime};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    zone: u8,
    from: u32,
    expression: &'a str,
}

/// Zones with changes by an hour, by half an hour, at midnight, over a day, and without any.
const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kolkata"];

/// How far the slow search goes.
const DAYS: i64 = 1500;

pub fn cron(data: &[u8]) {
    let Some(Input { zone, from, expression }) = input(data) else { return };
    let zone = ZONES[usize::from(zone) % ZONES.len()];
    let cron = match Cron::new(expression, zone) {
        Ok(cron) => cron,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(cron.to_string(), format!("{expression} {zone}"));
    let from = SystemTime::UNIX_EPOCH + Duration::from_secs(from.into());
    let runs: Vec<SystemTime> = cron.next_runs(from).take(6).collect();
    let seconds = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        assert_eq!(since.subsec_nanos(), 0, "not on a whole second");
        i64::try_from(since.as_secs()).expect("before the year 9999")
    };
    let mut before = seconds(from);
    for &run in &runs {
        assert!(seconds(run) > before, "{runs:?} after {from:?}");
        before = seconds(run);
    }
    let expression = expression.trim_ascii();
    if expression.starts_with('@') {
        return;
    }
    let oracle = Oracle::new(expression);
    let rules = TimeZone::get(zone).expect("a zone of the list");
    for &run in &runs {
        let time = Timestamp::from_second(seconds(run)).expect("in range");
        let earlier = time.checked_sub(SignedDuration::from_secs(1)).expect("in range");
        // Times that the clock skips run at the end of the gap.
        let skips = rules.to_offset(earlier).seconds() < rules.to_offset(time).seconds();
        assert!(skips || oracle.matches(rules.to_datetime(time)), "{run:?} does not match");
    }
    if zone == "UTC" {
        first_is_found(&oracle, seconds(from), runs.first().map(|&run| seconds(run)));
    }
}

/// Asserts that no matching time lies between `from` and the first run.
fn first_is_found(oracle: &Oracle, from: i64, first: Option<i64>) {
    let utc = |second: i64| TimeZone::UTC.to_datetime(Timestamp::from_second(second).expect("in range"));
    let times = oracle.times();
    let mut date = utc(from).date();
    for _ in 0..DAYS {
        if oracle.matches_date(date) {
            let found = times.iter().find_map(|&(hour, minute, second)| {
                let time = date.at(hour, minute, second, 0).to_zoned(TimeZone::UTC).expect("in range");
                Some(time.timestamp().as_second()).filter(|&second| second > from)
            });
            if found.is_some() {
                assert_eq!(first, found);
                return;
            }
        }
        date = date.tomorrow().expect("in range");
    }
    let end = from + (DAYS - 1) * 24 * 3600;
    assert!(first.is_none_or(|first| first > end), "{first:?} does not match");
}
