//! `CronError`: why an expression or a zone is refused.

use super::field::CronField;
use std::fmt;

/// The longest expression, in bytes.
pub(super) const MAX_LENGTH: usize = 256;

/// Why [`Cron::new`](crate::durable::Cron::new) refuses an expression or a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CronError {
    /// The expression is longer than [`MAX_LENGTH`](crate::durable::Cron::MAX_LENGTH).
    TooLong {
        /// Length of the expression in bytes.
        length: usize,
    },
    /// The expression has neither five nor six fields.
    FieldCount {
        /// Number of fields of the expression.
        count: usize,
    },
    /// The expression starts with `@`, and is not one of the known names.
    UnknownName {
        /// The name with its `@`.
        name: String,
    },
    /// An item of a field is malformed.
    Syntax {
        /// The field.
        field: CronField,
        /// The item: the text between two commas.
        text: String,
    },
    /// A number is outside the range of its field.
    OutOfRange {
        /// The field.
        field: CronField,
        /// The item that contains the number.
        text: String,
    },
    /// A step is 0, or larger than the field.
    ///
    /// `*/90` in the field of minutes would run once an hour, and not every 90 minutes.
    EngineStep {
        /// The field.
        field: CronField,
        /// The item that contains the step.
        text: String,
    },
    /// No day ever matches, such as 30 February.
    NeverMatches {
        /// The expression.
        expression: String,
    },
    /// The time zone is neither in the database of the system nor in the bundled one.
    UnknownZone {
        /// The name of the zone, cut after 64 characters.
        zone: String,
    },
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CronError::TooLong { length } => {
                write!(f, "cron expression has {length} bytes; allowed are up to {}", MAX_LENGTH)
            }
            CronError::FieldCount { count } => write!(
                f,
                "cron expression has {count} fields; it must have 5 (minute, hour, day of month, month, \
                 day of week), or 6 with the seconds first"
            ),
            CronError::UnknownName { name } => write!(
                f,
                "cron expression is `{name}`; known names are @hourly, @daily, @midnight, @weekly, \
                 @monthly, @yearly and @annually"
            ),
            CronError::Syntax { field, text } | CronError::OutOfRange { field, text } => {
                field.describe(f, text)
            }
            CronError::EngineStep { field, text } => {
                write!(f, "{field} is `{text}`; the step must be between 1 and {}", field.largest_step())
            }
            CronError::NeverMatches { expression } => {
                write!(f, "cron expression `{expression}` matches no day of the calendar")
            }
            CronError::UnknownZone { zone } => {
                write!(f, "time zone is `{zone}`; it must be a name of the IANA database")
            }
        }
    }
}

impl std::error::Error for CronError {}
