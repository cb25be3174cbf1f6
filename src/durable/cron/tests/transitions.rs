//! All zones and all changes of their clocks from 2020 to 2037, against a walk along the clock.

use super::oracle::{Oracle, Walk};
use crate::durable::cron::{expression::Cron, zone::Zone};
use jiff::{
    Timestamp,
    civil::date,
    tz::{TimeZone, TimeZoneDatabase},
};
use std::collections::BTreeMap;

const HOUR: i64 = 3600;

/// A change of the offset: the instant, and the offsets before and after it, in seconds.
type Change = (i64, i64, i64);

fn range() -> (i64, i64) {
    let start = |year| date(year, 1, 1).to_zoned(TimeZone::UTC).unwrap().timestamp().as_second();
    (start(2020), start(2038))
}

fn offset(zone: &TimeZone, second: i64) -> i64 {
    zone.to_offset(Timestamp::from_second(second).unwrap()).seconds().into()
}

/// Returns the changes from 2020 to 2037.
fn changes(zone: &TimeZone) -> Vec<Change> {
    let (start, end) = range();
    let instants = zone.following(Timestamp::from_second(start).unwrap());
    let instants = instants.map(|transition| transition.timestamp().as_second());
    let changes = instants.take_while(|&at| at < end);
    let changes = changes.map(|at| (at, offset(zone, at - 1), offset(zone, at)));
    changes.filter(|(_, before, after)| before != after).collect()
}

/// Returns all zones of the bundled database.
fn zones() -> Vec<(String, TimeZone)> {
    let database = TimeZoneDatabase::bundled();
    let names = database.available().map(|name| name.to_string()).collect::<Vec<_>>();
    let zones = names.into_iter().filter_map(|name| database.get(&name).ok().map(|zone| (name, zone)));
    zones.filter(|(_, zone)| !zone.is_unknown()).collect()
}

/// Returns expressions whose times are near a change. `hour` is the hour before the change, or the
/// hour that ends with it.
fn expressions(hour: i64) -> Vec<String> {
    let (last, now, next) = ((hour + 23) % 24, hour % 24, (hour + 1) % 24);
    vec![
        "*/15 * * * *".to_owned(),
        "30 * * * *".to_owned(),
        "5/10 * ? * SUN".to_owned(),
        format!("0 {now} * * *"),
        format!("30 {last} * * *"),
        format!("30 {now} * * *"),
        format!("*/15 {now} * * *"),
        format!("*/20 {last},{next} * * *"),
        format!("10-50/20 {last}-{next} * * *"),
        format!("* {now} ? * SUN"),
        format!("45 {last}-{now} L * FRI-SUN"),
        format!("15 {now} 25-7 3,4,9-11 ?"),
        "0 */2 * * *".to_owned(),
        "0 0 * * *".to_owned(),
    ]
}

/// Compares the runs around a change and returns their number.
fn check(
    name: &str,
    zone: &TimeZone,
    (at, before, after): Change,
    lead: i64,
    tail: i64,
    every: i64,
) -> usize {
    let rules = Zone::bundled(name).unwrap();
    let (start, end) = (at - lead, at + tail);
    let walk = Walk::new(zone, start, end, every);
    let mut count = 0;
    for expression in expressions((at + before).rem_euclid(24 * HOUR) / HOUR) {
        let seconds = if every == 1 { format!("*/7 {expression}") } else { expression };
        let cron = Cron::with_rules(&seconds, name, Some(rules.clone())).unwrap();
        let found = cron.runs_after(start * 1000).take_while(|&run| run <= end * 1000).collect::<Vec<_>>();
        let expected = Oracle::new(&seconds).runs(&walk);
        assert_eq!(found, expected, "{cron} at {at}, offset {before} becomes {after}");
        count += found.len();
    }
    count
}

/// Returns one zone for each list of changes.
fn different_zones() -> BTreeMap<Vec<Change>, (String, TimeZone)> {
    let mut different = BTreeMap::new();
    for (name, zone) in zones() {
        different.entry(changes(&zone)).or_insert((name, zone));
    }
    different
}

/// Calls `visit` for every `every`-th change of each zone. Zones with the same rule have the same
/// kind of change each year, so a part of the years is enough, and different ones for each zone.
fn visit_changes(every: usize, mut visit: impl FnMut(&str, &TimeZone, Change)) {
    for (place, (changes, (name, zone))) in different_zones().iter().enumerate() {
        let visited = changes.iter().skip(place % every).step_by(every);
        visited.for_each(|&change| visit(name, zone, change));
    }
}

#[test]
fn runs_around_changes_match_the_oracle() {
    let (mut checked, mut runs) = (0, 0);
    visit_changes(4, |name, zone, change| {
        runs += check(name, zone, change, 90 * 60, 150 * 60, 60);
        checked += 1;
    });
    assert!(checked > 300 && runs > 3000, "{checked} {runs}");
}

#[test]
fn runs_on_the_days_around_changes_match_the_oracle() {
    let mut runs = 0;
    visit_changes(32, |name, zone, change| {
        runs += check(name, zone, change, 26 * HOUR, 26 * HOUR, 60);
    });
    assert!(runs > 3000, "{runs}");
}

#[test]
fn runs_around_changes_match_the_oracle_by_the_second() {
    let mut runs = 0;
    visit_changes(48, |name, zone, change| {
        runs += check(name, zone, change, 2 * HOUR, 3 * HOUR, 1);
    });
    assert!(runs > 3000, "{runs}");
}

/// The changes that the tests above visit are all there are. One year of each zone is sampled.
#[test]
fn all_changes_are_known() {
    // No two changes are closer to each other.
    const STEP: i64 = 4 * HOUR;
    assert!(different_zones().len() > 40);
    for (place, (name, zone)) in zones().iter().enumerate() {
        let year = 2020 + place as i16 % 18;
        let [start, end] = [year, year + 1]
            .map(|year| date(year, 1, 1).to_zoned(TimeZone::UTC).unwrap().timestamp().as_second());
        let (mut sampled, mut last) = (Vec::new(), offset(zone, start - STEP));
        for second in (start..end).step_by(STEP as usize) {
            let now = offset(zone, second);
            if now != last {
                sampled.push(second);
            }
            last = now;
        }
        let is_in = |at: &i64| (start - STEP + 1..=end - STEP).contains(at);
        let known: Vec<i64> = changes(zone).iter().map(|change| change.0).filter(is_in).collect();
        assert_eq!(sampled.len(), known.len(), "{name} in {year}: {sampled:?} and {known:?}");
        assert!(known.iter().zip(&sampled).all(|(at, sample)| (0..STEP).contains(&(sample - at))), "{name}");
    }
}
