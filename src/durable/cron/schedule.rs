//! `CronSchedule`: the times of a wall clock that match an expression.

use super::{days::Days, values::Values};
use jiff::{
    Timestamp,
    civil::{Date, Time},
    tz::Offset,
};

/// A parsed expression.
#[derive(Debug, Clone)]
pub(super) struct CronSchedule {
    pub(super) seconds: Values,
    pub(super) minutes: Values,
    pub(super) hours: Values,
    pub(super) days: Days,
    pub(super) months: Values,
}

/// The calendar repeats itself after 400 years, which are whole weeks. A date that is not in such a
/// cycle does not exist.
const CYCLE_MONTHS: u32 = 400 * 12;

const LAST_YEAR: i16 = 9999;

impl CronSchedule {
    /// Returns whether the schedule has runs in each hour of its days.
    pub(super) fn is_hourly(&self) -> bool {
        self.hours.len() == 24
    }

    /// Returns the first matching time at or after `wall`, both in seconds of a wall clock since
    /// 1970. `None` if it is after the year 9999.
    pub(super) fn next(&self, wall: i64) -> Option<i64> {
        let from = Offset::UTC.to_datetime(Timestamp::from_second(wall).ok()?);
        let today = self.next_date(from.date())?;
        let (date, time) = match self.next_time(from.time()) {
            Some(time) if today == from.date() => (today, time),
            None if today == from.date() => (self.next_date(today.tomorrow().ok()?)?, self.first_time()),
            _ => (today, self.first_time()),
        };
        Offset::UTC.to_timestamp(date.to_datetime(time)).ok().map(Timestamp::as_second)
    }

    /// Returns whether a date matches at all.
    pub(super) fn ever_matches(&self) -> bool {
        self.next_date(Date::constant(2000, 1, 1)).is_some()
    }

    fn next_date(&self, from: Date) -> Option<Date> {
        let (mut year, mut month, mut first_day) = (from.year(), from.month(), from.day());
        for _ in 0..=CYCLE_MONTHS {
            #[cfg(test)]
            super::tests::work::add();
            if self.months.contains(month as u8) {
                let days = self.days.in_month(Date::new(year, month, 1).ok()?);
                if let Some(day) = days.at_or_after(first_day as u8) {
                    return Date::new(year, month, day as i8).ok();
                }
            }
            (year, month, first_day) = if month < 12 { (year, month + 1, 1) } else { (year + 1, 1, 1) };
            if year > LAST_YEAR {
                return None;
            }
        }
        None
    }

    /// Returns the first matching time of a day at or after `from`.
    fn next_time(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (from.hour() as u8, from.minute() as u8, from.second() as u8);
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.at_or_after(second)
            {
                return Some(time(hour, minute, second));
            }
            if let Some(minute) = self.minutes.at_or_after(minute + 1) {
                return Some(time(hour, minute, self.seconds.first()));
            }
        }
        let hour = self.hours.at_or_after(hour + 1)?;
        Some(time(hour, self.minutes.first(), self.seconds.first()))
    }

    fn first_time(&self) -> Time {
        time(self.hours.first(), self.minutes.first(), self.seconds.first())
    }
}

fn time(hour: u8, minute: u8, second: u8) -> Time {
    Time::constant(hour as i8, minute as i8, second as i8, 0)
}
