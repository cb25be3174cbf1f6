//! `Cron`: an expression with its time zone.

use super::{
    error::{self, CronError},
    parse,
    schedule::CronSchedule,
    zone::{MAX_NAME, Zone},
};
use crate::durable::unix_millis::{present_millis, system_time};
use std::{fmt, time::SystemTime};

/// A cron expression in a time zone.
///
/// ```
/// use netwheel::durable::{Cron, CronError};
///
/// let digest = Cron::new("0 9 * * MON-FRI", "Asia/Shanghai")?;
/// assert_eq!(digest.to_string(), "0 9 * * MON-FRI Asia/Shanghai");
///
/// let error = Cron::new("*/90 * * * *", "Asia/Shanghai").unwrap_err();
/// assert_eq!(error.to_string(), "minute is `*/90`; the step must be between 1 and 59");
/// # Ok::<(), CronError>(())
/// ```
///
/// # Fields
///
/// An expression has five fields, separated by spaces: minute, hour, day of the month, month and
/// day of the week. With six fields, the first one is the second. Otherwise, runs are at second 0.
///
/// | field | values | names |
/// |---|---|---|
/// | second | 0 to 59 | |
/// | minute | 0 to 59 | |
/// | hour | 0 to 23 | |
/// | day of the month | 1 to 31 | |
/// | month | 1 to 12 | JAN to DEC |
/// | day of the week | 0 to 7, where 0 and 7 are Sunday | SUN to SAT |
///
/// A field is a list of items, separated by commas. Letters may be in upper or lower case.
///
/// | item | fields | meaning |
/// |---|---|---|
/// | `*` | all | each value |
/// | `5`, `MON` | all | this value |
/// | `9-17`, `MON-FRI` | all | the values from the first to the last |
/// | `FRI-MON`, `22-2` | all | goes on at the start of the field: Friday to Monday, 22:00 to 02:00 |
/// | `*/15`, `9-17/2`, `22-4/2` | all | every n-th value, counted from the first |
/// | `5/20` | all | from 5 to the end of the field, every 20th value: 5, 25, 45 |
/// | `?` | days, as the whole field | the same as `*` |
/// | `L`, `L-3` | day of the month | the last day, and the third day before the last |
/// | `15W` | day of the month | the day from Monday to Friday nearest to the 15th, in the same month |
/// | `LW` | day of the month | the last day from Monday to Friday |
/// | `FRI#2`, `5#2` | day of the week | the second Friday of the month |
/// | `FRIL`, `5L` | day of the week | the last Friday of the month |
///
/// Months that lack the day are skipped: neither `31` nor `31W` runs in April.
///
/// | name | the same as |
/// |---|---|
/// | `@hourly` | `0 * * * *` |
/// | `@daily`, `@midnight` | `0 0 * * *` |
/// | `@weekly` | `0 0 * * 0` |
/// | `@monthly` | `0 0 1 * *` |
/// | `@yearly`, `@annually` | `0 0 1 1 *` |
///
/// # Two fields of days
///
/// If both fields of days are restricted, a day matches when **either** field matches.
/// `0 0 13 * FRI` runs on each 13th and on each Friday, as POSIX and Vixie cron define. As in Vixie
/// cron, a field that starts with `*` is not restricted in this sense, and the day must match both
/// fields: `0 0 */2 * MON` runs on Mondays with an odd date.
///
/// # Daylight saving time
///
/// The fields describe the wall clock of the zone. Changes of the offset for other reasons are
/// treated in the same way.
///
/// | the clock | the hour field leaves out an hour | the hour field has all 24 hours |
/// |---|---|---|
/// | skips times | All of them together run once, at the first instant after the gap. | They do not run. |
/// | shows times twice | They run once, at the first of the two instants. | They run both times. |
///
/// - `30 2 * * *` runs once on each day. If 02:00 becomes 03:00, it runs at 03:00.
/// - `*/15 2 * * *` then runs once at 03:00, and so does `*/15 2,3 * * *`, followed by 03:15.
/// - `*/15 * * * *` and `@hourly` keep their interval, also in the hour that is shown twice. This
///   is the rule of cronie for jobs that run every hour or more often.
///
/// The rules of zones come from the system, or from a database in the crate jiff if the system does
/// not have the zone. They are read when the value is made. Nodes whose databases differ may
/// calculate different runs.
///
/// # Differences from other implementations
///
/// | | here | Vixie cron, cronie | Quartz |
/// |---|---|---|---|
/// | seconds | optional | no | required |
/// | years | no | no | optional |
/// | number of Sunday | 0 and 7 | 0 and 7 | 1 |
/// | both fields of days restricted | either matches | either matches | refused, one must be `?` |
/// | `5/20` | 5, 25, 45 | refused | 5, 25, 45 |
/// | `FRI-MON` | goes on at the start | refused | goes on at the start |
/// | `L`, `W`, `#` | yes | no | yes |
/// | `L` as day of the week | refused, write `SAT` | no | Saturday |
/// | a step larger than the field | refused | the first value | refused |
/// | times in a gap | run once at its end | run once shortly after it | may be skipped |
/// | times that are shown twice | run once | run once | may run twice |
/// | hourly jobs while the clock repeats an hour | run | run | run |
/// | `@reboot` | no | yes | no |
#[derive(Clone)]
pub struct Cron {
    expression: Box<str>,
    zone: Box<str>,
    pub(super) schedule: CronSchedule,
    pub(super) rules: Zone,
}

impl Cron {
    /// Longest expression, in bytes.
    pub const MAX_LENGTH: usize = error::MAX_LENGTH;

    /// Parses `expression` for the time zone with the IANA name `zone`, such as `Europe/Paris`.
    ///
    /// The first lookup of a zone reads the time zone database of the system, so this must not be
    /// called on an event loop.
    ///
    /// # Errors
    ///
    /// [`CronError`] if the expression is malformed, never matches or is longer than
    /// [`MAX_LENGTH`](Cron::MAX_LENGTH), or if the zone is unknown.
    pub fn new(expression: &str, zone: &str) -> Result<Cron, CronError> {
        let rules = Zone::get(zone);
        Cron::with_rules(expression, zone, rules)
    }

    pub(super) fn with_rules(expression: &str, zone: &str, rules: Option<Zone>) -> Result<Cron, CronError> {
        let schedule = parse::parse(expression)?;
        if !schedule.ever_matches() {
            return Err(CronError::NeverMatches { expression: expression.to_owned() });
        }
        let unknown = || CronError::UnknownZone { zone: zone.chars().take(MAX_NAME).collect() };
        let rules = rules.ok_or_else(unknown)?;
        Ok(Cron { expression: expression.into(), zone: zone.into(), schedule, rules })
    }

    /// Returns the expression as it was written.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Returns the runs after `time`, in ascending order, up to the year 9999.
    ///
    /// A preview for people: each run is calculated when the iterator is advanced.
    ///
    /// ```
    /// use netwheel::durable::{Cron, CronError};
    /// use std::time::{Duration, SystemTime};
    ///
    /// let quarters = Cron::new("*/15 * * * *", "UTC")?;
    /// let runs = quarters.next_runs(SystemTime::UNIX_EPOCH).take(3);
    /// let minutes: Vec<u64> =
    ///     runs.map(|run| run.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 60).collect();
    /// assert_eq!(minutes, [15, 30, 45]);
    /// # Ok::<(), CronError>(())
    /// ```
    pub fn next_runs(&self, time: SystemTime) -> impl Iterator<Item = SystemTime> + use<'_> {
        self.runs_after(present_millis(time)).map(system_time)
    }

    /// Returns the name of the time zone as it was written.
    pub fn zone(&self) -> &str {
        &self.zone
    }
}

/// Compares the texts of the expressions and of the zones.
impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.expression == other.expression && self.zone == other.zone
    }
}

impl Eq for Cron {}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cron").field("expression", &self.expression).field("zone", &self.zone).finish()
    }
}

/// Writes the expression, a space and the zone.
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.expression, self.zone)
    }
}
