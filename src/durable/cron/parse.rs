//! From the text of an expression to a `CronSchedule`.

use super::{
    days::{Days, DaysOfMonth, DaysOfWeek},
    error::{CronError, MAX_LENGTH},
    field::CronField,
    schedule::CronSchedule,
    values::Values,
};

/// Names that stand for an expression.
const NAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Parses an expression, without a check whether it ever matches.
pub(super) fn parse(expression: &str) -> Result<CronSchedule, CronError> {
    if expression.len() > MAX_LENGTH {
        return Err(CronError::TooLong { length: expression.len() });
    }
    let expression = expression.trim_ascii();
    let fields = if expression.starts_with('@') { expand(expression)? } else { expression };
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let (second, [minute, hour, day_of_month, month, day_of_week]) = match fields[..] {
        [minute, hour, date, month, day] => ("0", [minute, hour, date, month, day]),
        [second, minute, hour, date, month, day] => (second, [minute, hour, date, month, day]),
        _ => return Err(CronError::FieldCount { count: fields.len() }),
    };
    Ok(CronSchedule {
        seconds: values(CronField::Second, second)?,
        minutes: values(CronField::Minute, minute)?,
        hours: values(CronField::Hour, hour)?,
        days: Days {
            of_month: days_of_month(day_of_month)?,
            of_week: days_of_week(day_of_week)?,
            both: [day_of_month, day_of_week].iter().any(|text| text.starts_with(['*', '?'])),
        },
        months: values(CronField::Month, month)?,
    })
}

fn expand(name: &str) -> Result<&'static str, CronError> {
    let known = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|&(_, fields)| fields).ok_or_else(|| CronError::UnknownName { name: name.to_owned() })
}

fn values(field: CronField, text: &str) -> Result<Values, CronError> {
    text.split(',').try_fold(Values::default(), |set, text| Ok(set.union(Item { field, text }.values()?)))
}

fn days_of_month(text: &str) -> Result<DaysOfMonth, CronError> {
    let mut days = DaysOfMonth::default();
    for text in any_day(text).split(',') {
        let item = Item { field: CronField::DayOfMonth, text };
        match text.to_ascii_uppercase().as_str() {
            "L" => days.from_end.insert(0),
            "LW" => days.last_working_day = true,
            upper => {
                if let Some(back) = upper.strip_prefix("L-") {
                    let back = item.number(back)?.filter(|back| (1..=30).contains(back));
                    days.from_end.insert(back.ok_or_else(|| item.out_of_range())?);
                } else if let Some(date) = upper.strip_suffix('W') {
                    days.near.insert(item.value(date)?);
                } else {
                    days.dates = days.dates.union(item.values()?);
                }
            }
        }
    }
    Ok(days)
}

fn days_of_week(text: &str) -> Result<DaysOfWeek, CronError> {
    let mut days = DaysOfWeek::default();
    for text in any_day(text).split(',') {
        let item = Item { field: CronField::DayOfWeek, text };
        if let Some((day, nth)) = text.split_once('#') {
            let (day, nth) = (item.value(day)?, item.number(nth)?.filter(|nth| (1..=5).contains(nth)));
            let nth = nth.ok_or_else(|| item.out_of_range())?;
            days.nth[usize::from(nth) - 1].insert(day % 7);
        } else if let Some(day) = text.strip_suffix(['L', 'l']) {
            days.last.insert(item.value(day)? % 7);
        } else {
            days.every = days.every.union(item.values()?);
        }
    }
    Ok(days)
}

/// `?` stands for `*` as a whole field of days.
fn any_day(text: &str) -> &str {
    if text == "?" { "*" } else { text }
}

/// The text between two commas.
struct Item<'t> {
    field: CronField,
    text: &'t str,
}

impl Item<'_> {
    /// Parses `*`, `a` or `a-b`, with or without a step.
    fn values(&self) -> Result<Values, CronError> {
        let (range, step) = match self.text.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (self.text, None),
        };
        let (first, last) = if range == "*" {
            (*self.field.range().start(), self.field.last())
        } else if let Some((first, last)) = range.split_once('-') {
            (self.value(first)?, self.value(last)?)
        } else {
            let value = self.value(range)?;
            (value, if step.is_some() { self.field.last().max(value) } else { value })
        };
        Ok(self.field.span(first, last, step.unwrap_or(1)))
    }

    fn step(&self, text: &str) -> Result<u8, CronError> {
        let step = self.number(text)?.filter(|step| (1..=self.field.largest_step()).contains(step));
        step.ok_or_else(|| CronError::EngineStep { field: self.field, text: self.text.to_owned() })
    }

    /// Parses a number or a name of the field.
    fn value(&self, text: &str) -> Result<u8, CronError> {
        if let Some(value) = self.field.named(text) {
            return Ok(value);
        }
        let value = self.number(text)?.filter(|value| self.field.range().contains(value));
        value.ok_or_else(|| self.out_of_range())
    }

    /// Parses a number. Returns `None` if it is larger than any that is allowed.
    fn number(&self, text: &str) -> Result<Option<u8>, CronError> {
        // `parse` alone accepts a plus sign.
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(CronError::Syntax { field: self.field, text: self.text.to_owned() });
        }
        Ok(text.parse().ok())
    }

    fn out_of_range(&self) -> CronError {
        CronError::OutOfRange { field: self.field, text: self.text.to_owned() }
    }
}
