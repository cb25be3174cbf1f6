//! `Cron`: an expression with its time zone.

use super::{
    CronError, parse,
    schedule::Schedule,
    zone::{MAX_NAME, Zone},
};
use std::fmt;

/// A cron expression in a time zone.
///
/// ```
/// use netwheel::durable::Cron;
///
/// let digest = Cron::new("0 9 * * MON-FRI", "Asia/Shanghai")?;
/// assert_eq!(digest.to_string(), "0 9 * * MON-FRI Asia/Shanghai");
/// # Ok::<(), netwheel::durable::CronError>(())
/// ```
#[derive(Clone)]
pub struct Cron {
    expression: Box<str>,
    zone: Box<str>,
    pub(super) schedule: Schedule,
    pub(super) rules: Zone,
}

impl Cron {
    /// Longest expression, in bytes.
    pub const MAX_LENGTH: usize = 256;

    /// Parses `expression` for the time zone with the IANA name `zone`, such as `Europe/Paris`.
    ///
    /// # Errors
    ///
    /// If the expression is malformed or never matches, or if the zone is unknown.
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
