//! `Days`: which days of a month match the two fields of days.

use super::values::Values;
use jiff::civil::Date;

/// The fields of days.
#[derive(Debug, Clone)]
pub(super) struct Days {
    pub(super) of_month: DaysOfMonth,
    pub(super) of_week: DaysOfWeek,
    /// Whether a day must match both fields, and not only one of them.
    pub(super) both: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct DaysOfMonth {
    /// Days counted from the first, which is 1.
    pub(super) dates: Values,
    /// Days counted back from the last, which is 0.
    pub(super) from_end: Values,
    /// Dates that stand for the nearest working day.
    pub(super) near: Values,
    /// Whether the last working day matches.
    pub(super) last_working_day: bool,
}

/// Days of the week from Sunday, which is 0.
#[derive(Debug, Clone, Default)]
pub(super) struct DaysOfWeek {
    /// Days of all weeks.
    pub(super) every: Values,
    /// Days of the first, second … fifth of that name in a month.
    pub(super) nth: [Values; 5],
    /// Days of the last of that name in a month.
    pub(super) last: Values,
}

const SUNDAY: u8 = 0;
const SATURDAY: u8 = 6;

/// A month: its length, and the day of the week on which it starts.
#[derive(Clone, Copy)]
struct Month {
    length: u8,
    first: u8,
}

impl Days {
    /// Returns the days that match in the month of `date`.
    pub(super) fn in_month(&self, date: Date) -> Values {
        let first = date.first_of_month().weekday().to_sunday_zero_offset() as u8;
        let month = Month { length: date.days_in_month() as u8, first };
        let (by_date, by_name) = (self.of_month.in_month(month), self.of_week.in_month(month));
        if self.both { by_date.intersection(by_name) } else { by_date.union(by_name) }
    }
}

impl DaysOfMonth {
    fn in_month(&self, month: Month) -> Values {
        let all = (1..=month.length).collect();
        let mut days = self.dates.intersection(all);
        let from_end = self.from_end.iter().filter(|&back| back < month.length);
        from_end.for_each(|back| days.insert(month.length - back));
        let near = self.near.intersection(all);
        near.iter().for_each(|date| days.insert(month.nearest_working_day(date)));
        if self.last_working_day {
            days.insert(month.nearest_working_day(month.length));
        }
        days
    }
}

impl DaysOfWeek {
    fn in_month(&self, month: Month) -> Values {
        let matches = |&day: &u8| {
            let name = month.day_of_week(day);
            let week = usize::from((day - 1) / 7);
            self.every.contains(name)
                || self.nth[week].contains(name)
                || (day + 7 > month.length && self.last.contains(name))
        };
        (1..=month.length).filter(matches).collect()
    }
}

impl Month {
    fn day_of_week(self, day: u8) -> u8 {
        (self.first + day - 1) % 7
    }

    /// Returns the day from Monday to Friday that is nearest to `day` in the same month.
    fn nearest_working_day(self, day: u8) -> u8 {
        match self.day_of_week(day) {
            SATURDAY if day > 1 => day - 1,
            SATURDAY => day + 2,
            SUNDAY if day < self.length => day + 1,
            SUNDAY => day - 2,
            _ => day,
        }
    }
}
