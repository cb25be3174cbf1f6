//! Random expressions.

use super::{
    oracle::{Oracle, Walk},
    support::cron,
};
use crate::durable::cron::{error::CronError, expression::Cron};
use jiff::{Timestamp, civil::Date, tz::TimeZoneDatabase};
use proptest::{collection::vec, prelude::*, sample::select};

/// A number, range or step of a field.
fn item(low: u8, high: u8, largest_step: u8) -> BoxedStrategy<String> {
    let step = 1..=largest_step;
    let value = low..=high;
    prop_oneof![
        3 => value.clone().prop_map(|value| value.to_string()),
        2 => (value.clone(), value.clone()).prop_map(|(first, last)| format!("{first}-{last}")),
        1 => (value.clone(), value.clone(), step.clone())
            .prop_map(|(first, last, step)| format!("{first}-{last}/{step}")),
        1 => (value, step.clone()).prop_map(|(first, step)| format!("{first}/{step}")),
        1 => step.prop_map(|step| format!("*/{step}")),
    ]
    .boxed()
}

fn list(item: BoxedStrategy<String>) -> BoxedStrategy<String> {
    prop_oneof![2 => Just("*".to_owned()), 5 => vec(item, 1..4).prop_map(|items| items.join(","))].boxed()
}

fn day_of_month() -> BoxedStrategy<String> {
    prop_oneof![
        4 => item(1, 31, 30),
        1 => select(vec!["L".to_owned(), "LW".to_owned()]),
        1 => (1..=30).prop_map(|back| format!("L-{back}")),
        1 => (1..=31).prop_map(|date| format!("{date}W")),
    ]
    .boxed()
}

fn day_of_week() -> BoxedStrategy<String> {
    let names = || select(vec!["SUN", "mon", "Tue", "WED", "THU", "fri", "SAT", "0", "3", "7"]);
    prop_oneof![
        3 => item(0, 7, 6),
        1 => names().prop_map(str::to_owned),
        1 => (names(), names()).prop_map(|(first, last)| format!("{first}-{last}")),
        1 => (names(), 1..=5).prop_map(|(name, nth)| format!("{name}#{nth}")),
        1 => names().prop_map(|name| format!("{name}L")),
    ]
    .boxed()
}

/// An expression of five fields.
fn expression() -> impl Strategy<Value = String> {
    let months = select(vec!["*", "*", "2", "JAN-MAR", "oct-APR", "*/4", "2,6,11"]).prop_map(str::to_owned);
    let fields =
        (list(item(0, 59, 59)), list(item(0, 23, 23)), list(day_of_month()), months, list(day_of_week()));
    fields.prop_map(|(minute, hour, date, month, day)| format!("{minute} {hour} {date} {month} {day}"))
}

/// Parses an expression, unless it never matches.
fn parse(expression: &str, zone: &str) -> Option<Cron> {
    match Cron::new(expression, zone) {
        Ok(_) => Some(cron(expression, zone)),
        Err(CronError::NeverMatches { .. }) => None,
        Err(error) => panic!("{expression}: {error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Finds the next day by visiting each, and then the next time of that day.
    #[test]
    fn days_match_the_oracle(expression in expression(), day in 0..60_000_i64, time in 0..86_400_000_i64) {
        let after = day * 86_400_000 + time;
        let oracle = Oracle::new(&expression);
        let Some(cron) = parse(&expression, "UTC") else {
            let mut cycle = Date::constant(2000, 1, 1).series(jiff::Span::new().days(1)).take(146_097);
            prop_assert!(!cycle.any(|date| oracle.matches_date(date)), "{}", expression);
            return Ok(());
        };
        let start = Timestamp::from_millisecond(after).unwrap().to_zoned(jiff::tz::TimeZone::UTC).date();
        let days = start.series(jiff::Span::new().days(1)).filter(|&date| oracle.matches_date(date));
        let times = oracle.times();
        let mut runs = days.flat_map(|date| {
            let run = move |&(hour, minute, second): &(i8, i8, i8)| {
                let zoned = date.at(hour, minute, second, 0).to_zoned(jiff::tz::TimeZone::UTC);
                zoned.unwrap().timestamp().as_millisecond()
            };
            times.iter().map(run).collect::<Vec<_>>()
        });
        let expected = runs.find(|&run| run > after);
        prop_assert_eq!(cron.next_after(after), expected, "{} after {}", expression, after);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Walks along the clock of a day with a transition, by the minute.
    #[test]
    fn runs_around_transitions_match_the_oracle(
        expression in expression(),
        zone in select(vec![
            "Europe/Dublin", "America/New_York", "America/Santiago", "Africa/Cairo", "Africa/Casablanca",
            "Asia/Gaza", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Chatham", "America/Havana",
        ]),
        year in 2020..2100_i64,
        place in 0..4_usize,
        lead in 30..1500_i64,
    ) {
        let Some(cron) = parse(&expression, zone) else { return Ok(()) };
        let rules = TimeZoneDatabase::bundled().get(zone).unwrap();
        let from = Timestamp::from_second((year - 1970) * 31_556_952).unwrap();
        let Some(transition) = rules.following(from).nth(place) else { return Ok(()) };
        let at = transition.timestamp().as_second();
        let (start, end) = (at - lead * 60, at + 24 * 3600);
        let expected = Oracle::new(&expression).runs(&Walk::new(&rules, start, end, 60));
        let found = cron.runs_after(start * 1000).take_while(|&run| run <= end * 1000).collect::<Vec<_>>();
        prop_assert_eq!(&found, &expected, "{} in {} around {}", expression, zone, at);
        prop_assert_eq!(cron.count_between(start * 1000, end * 1000, 10_000), expected.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The next run does not depend on where between two runs the search starts.
    #[test]
    fn runs_are_strictly_increasing(
        expression in expression(),
        second in "[0-9]|[1-5][0-9]|\\*|\\*/7|1-9",
        after in -4_000_000_000_000..8_000_000_000_000_i64,
        part in 0..1000_i64,
    ) {
        let Some(cron) = parse(&format!("{second} {expression}"), "Europe/Dublin") else { return Ok(()) };
        let first = cron.next_after(after).unwrap();
        let next = cron.next_after(first).unwrap();
        prop_assert!(first > after && next > first && first % 1000 == 0 && next % 1000 == 0);
        let between = first + (next - first) / 1000 * part;
        prop_assert_eq!(cron.next_after(between), Some(next));
        prop_assert_eq!(cron.next_after(next - 1), Some(next));
        prop_assert_eq!(cron.next_after(first - 1), Some(first));
    }

    #[test]
    fn no_text_panics(expression in any::<String>(), zone in any::<String>()) {
        let _ = Cron::new(&expression, &zone);
    }

    #[test]
    fn no_text_of_fields_panics(
        expression in "([0-9*/,\\-?LWlw#@]{1,6}|[A-Za-z]{3}|[0-9]{1,2}L|L-[0-9]{1,2})( ([0-9*/,\\-?LWlw#]{1,4}|[A-Z]{3})){0,6}",
        after in any::<i64>(),
        until in any::<i64>(),
    ) {
        match Cron::new(&expression, "Europe/Berlin") {
            Ok(cron) => {
                let _ = cron.next_after(after);
                prop_assert!(cron.count_between(after, until, 10) <= 10);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn valid_fields_that_are_damaged_do_not_panic(
        expression in expression(), place in any::<prop::sample::Index>(), byte in "[ -~]",
    ) {
        let place = place.index(expression.len());
        let damaged = format!("{}{byte}{}", &expression[..place], &expression[place + 1..]);
        if let Ok(cron) = Cron::new(&damaged, "UTC") {
            prop_assert!(cron.next_after(0).is_some_and(|run| run > 0));
        }
    }
}
