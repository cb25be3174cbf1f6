//! `CronField`: the fields of an expression with their names and ranges.

use super::values::Values;
use std::{fmt, ops::RangeInclusive};

/// A field of a cron expression.
///
/// The syntax has these six fields, so a `match` needs no wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CronField {
    /// Seconds, 0 to 59. Expressions of five fields leave them out.
    Second,
    /// Minutes, 0 to 59.
    Minute,
    /// Hours, 0 to 23.
    Hour,
    /// Days of the month, 1 to 31.
    DayOfMonth,
    /// Months, 1 to 12 or JAN to DEC.
    Month,
    /// Days of the week, 0 to 7 or SUN to SAT, where 0 and 7 are Sunday.
    DayOfWeek,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl CronField {
    /// Returns the numbers that may be written.
    pub(super) fn range(self) -> RangeInclusive<u8> {
        match self {
            CronField::Second | CronField::Minute => 0..=59,
            CronField::Hour => 0..=23,
            CronField::DayOfMonth => 1..=31,
            CronField::Month => 1..=12,
            CronField::DayOfWeek => 0..=7,
        }
    }

    /// Returns the smallest value, and the number of different values: Sunday counts once.
    fn cycle(self) -> (u8, u8) {
        let (first, last) = self.range().into_inner();
        match self {
            CronField::DayOfWeek => (first, last),
            _ => (first, last - first + 1),
        }
    }

    /// Returns the largest number that `*` and `a/n` include.
    pub(super) fn last(self) -> u8 {
        let (first, count) = self.cycle();
        first + count - 1
    }

    /// Returns the largest step that selects more than one value.
    pub(super) fn largest_step(self) -> u8 {
        self.last() - self.range().start()
    }

    /// Returns the number that `name` stands for, in upper or lower case.
    pub(super) fn named(self, name: &str) -> Option<u8> {
        let names: &[&str] = match self {
            CronField::Month => &MONTHS,
            CronField::DayOfWeek => &DAYS,
            _ => &[],
        };
        let place = names.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(*self.range().start() + place as u8)
    }

    /// Returns every `step`-th value from `first` to `last`. A range whose end is smaller than its
    /// start goes on at the start of the field.
    pub(super) fn span(self, first: u8, last: u8, step: u8) -> Values {
        let (smallest, count) = self.cycle();
        let length = if first <= last { last - first + 1 } else { last + count - first + 1 };
        let offsets = (0..length).step_by(step.into());
        offsets.map(|offset| smallest + (first - smallest + offset) % count).collect()
    }

    /// Describes the allowed texts, for error messages.
    fn allowed(self) -> &'static str {
        match self {
            CronField::Second | CronField::Minute => "0 to 59, *, lists, ranges and steps",
            CronField::Hour => "0 to 23, *, lists, ranges and steps",
            CronField::DayOfMonth => "1 to 31, *, ?, L, L-1 to L-30, LW, 1W to 31W, lists, ranges and steps",
            CronField::Month => "1 to 12, JAN to DEC, *, lists, ranges and steps",
            CronField::DayOfWeek => {
                "0 to 7, SUN to SAT, *, ?, SUNL to SATL, SUN#1 to SAT#5, lists, ranges and steps"
            }
        }
    }

    pub(super) fn describe(self, f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
        write!(f, "{self} is `{text}`; allowed are {}", self.allowed())
    }
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CronField::Second => "second",
            CronField::Minute => "minute",
            CronField::Hour => "hour",
            CronField::DayOfMonth => "day of month",
            CronField::Month => "month",
            CronField::DayOfWeek => "day of week",
        })
    }
}
