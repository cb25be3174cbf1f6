//! A slow and simple implementation of the same rules, to compare with.

use jiff::{
    Timestamp,
    civil::{Date, DateTime, Weekday},
    tz::TimeZone,
};

const MONTHS: &str = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC";
const DAYS: &str = "SUNMONTUEWEDTHUFRISAT";

/// The lists of values that an expression writes.
pub(super) struct Oracle {
    seconds: Vec<i8>,
    minutes: Vec<i8>,
    hours: Vec<i8>,
    months: Vec<i8>,
    day_of_month: String,
    day_of_week: String,
}

impl Oracle {
    /// Reads an expression of five or six fields that is known to be valid.
    pub(super) fn new(expression: &str) -> Oracle {
        let text = expression.to_uppercase();
        let mut fields = text.split_whitespace().collect::<Vec<_>>();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        Oracle {
            seconds: list(fields[0], 0, 59, ""),
            minutes: list(fields[1], 0, 59, ""),
            hours: list(fields[2], 0, 23, ""),
            months: list(fields[4], 1, 12, MONTHS),
            day_of_month: fields[3].to_owned(),
            day_of_week: fields[5].to_owned(),
        }
    }

    /// Returns whether a time of the wall clock matches.
    pub(super) fn matches(&self, wall: DateTime) -> bool {
        self.minutes.contains(&wall.minute())
            && self.hours.contains(&wall.hour())
            && self.seconds.contains(&wall.second())
            && self.matches_date(wall.date())
    }

    pub(super) fn matches_date(&self, date: Date) -> bool {
        if !self.months.contains(&date.month()) {
            return false;
        }
        let by_date = self.day_of_month.split(',').any(|item| date_matches(item, date));
        let by_name = self.day_of_week.split(',').any(|item| name_matches(item, date));
        match self.day_of_month.starts_with(['*', '?']) || self.day_of_week.starts_with(['*', '?']) {
            true => by_date && by_name,
            false => by_date || by_name,
        }
    }

    /// Returns the matching times of a day, in ascending order.
    pub(super) fn times(&self) -> Vec<(i8, i8, i8)> {
        let mut times = Vec::new();
        for &hour in &self.hours {
            for &minute in &self.minutes {
                times.extend(self.seconds.iter().map(|&second| (hour, minute, second)));
            }
        }
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Returns the runs of a walk along the clock.
    pub(super) fn runs(&self, walk: &Walk) -> Vec<i64> {
        let hourly = (0..24).all(|hour| self.hours.contains(&hour));
        let mut runs = Vec::new();
        for step in &walk.steps {
            let due = if hourly {
                self.matches(step.shown)
            } else {
                step.reached.iter().any(|&wall| self.matches(wall))
            };
            if due {
                runs.push(step.second * 1000);
            }
        }
        runs
    }
}

/// A clock on a wall, looked at in regular steps.
pub(super) struct Walk {
    steps: Vec<EngineStep>,
}

struct EngineStep {
    /// The instant in UTC.
    second: i64,
    /// What the clock shows.
    shown: DateTime,
    /// Times that the clock shows or has jumped over, and that it has not shown before.
    reached: Vec<DateTime>,
}

impl Walk {
    /// Looks at the clock after `after` and up to `until`, each `every` seconds. No transition lies
    /// in the day before `after`.
    pub(super) fn new(zone: &TimeZone, after: i64, until: i64, every: i64) -> Walk {
        let show = |second: i64| zone.to_datetime(Timestamp::from_second(second).unwrap());
        let mut latest = show(after);
        let mut steps = Vec::new();
        for second in (after + every..=until).step_by(every as usize) {
            let shown = show(second);
            let mut reached = Vec::new();
            while latest < shown {
                latest = latest.checked_add(jiff::SignedDuration::from_secs(every)).unwrap();
                reached.push(latest);
            }
            steps.push(EngineStep { second, shown, reached });
        }
        Walk { steps }
    }
}

/// Writes out a list of items without the special days.
fn list(text: &str, low: i8, high: i8, names: &str) -> Vec<i8> {
    let value = |text: &str| match names.find(text) {
        Some(place) if text.len() == 3 => low + place as i8 / 3,
        _ => text.parse().unwrap(),
    };
    let mut all = Vec::new();
    for item in text.split(',') {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let step = step.parse::<usize>().unwrap();
        let values: Vec<i8> = match range.split_once('-') {
            Some((first, last)) => {
                let (mut at, last) = (value(first), value(last));
                let mut values = vec![at];
                while at != last {
                    at = if at == high { low } else { at + 1 };
                    values.push(at);
                }
                values
            }
            None if range == "*" => (low..=high).collect(),
            None if item.contains('/') => (value(range)..=high).collect(),
            None => vec![value(range)],
        };
        all.extend(values.into_iter().step_by(step));
    }
    all
}

fn date_matches(item: &str, date: Date) -> bool {
    let last = date.last_of_month();
    let works = |date: Date| !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday);
    match item {
        "?" => true,
        "L" => date == last,
        "LW" => (0..7).filter_map(|back| days_later(last, -back)).find(|&day| works(day)) == Some(date),
        _ => {
            if let Some(back) = item.strip_prefix("L-") {
                days_later(date, back.parse().unwrap()) == Some(last)
            } else if let Some(day) = item.strip_suffix('W') {
                let Ok(target) = Date::new(date.year(), date.month(), day.parse().unwrap()) else {
                    return false;
                };
                let near = [0, -1, 1, -2, 2].map(|distance| days_later(target, distance));
                let same_month = |day: &Date| day.month() == date.month();
                near.into_iter().flatten().filter(same_month).find(|&day| works(day)) == Some(date)
            } else {
                list(item, 1, 31, "").contains(&date.day())
            }
        }
    }
}

fn name_matches(item: &str, date: Date) -> bool {
    let number = |name: &str| match DAYS.find(name) {
        Some(place) if name.len() == 3 => place as i8 / 3,
        _ => name.parse::<i8>().unwrap(),
    };
    let weekday = |name: &str| Weekday::from_sunday_zero_offset(number(name) % 7).unwrap();
    if item == "?" {
        true
    } else if let Some((name, nth)) = item.split_once('#') {
        date.nth_weekday_of_month(nth.parse().unwrap(), weekday(name)).is_ok_and(|day| day == date)
    } else if let Some(name) = item.strip_suffix('L') {
        date.nth_weekday_of_month(-1, weekday(name)).is_ok_and(|day| day == date)
    } else {
        let today = date.weekday().to_sunday_zero_offset();
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let step = step.parse::<usize>().unwrap();
        let mut days: Vec<i8> = match range.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first), number(last));
                // Two weeks on end, of which the range covers at most one and a day.
                let last = if last < first { last + 7 } else { last };
                (first..=last).collect()
            }
            None if range == "*" => (0..=6).collect(),
            None if item.contains('/') => (number(range)..=6.max(number(range))).collect(),
            None => vec![number(range)],
        };
        days = days.into_iter().step_by(step).map(|day| day % 7).collect();
        days.contains(&today)
    }
}

fn days_later(date: Date, days: i64) -> Option<Date> {
    date.checked_add(jiff::Span::new().days(days)).ok()
}
